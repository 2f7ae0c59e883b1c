"""Compares the scores of an export with the model's scores."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_model_first, did_you_mean, is_number
from lodestar._typing import Model, StrPath
from lodestar.export import (
    batches,
    features_json,
    follow,
    requests,
    signatures,
)
from lodestar.export.compare import MismatchError, OutputDifference, compare
from lodestar.export.requests import Request
from lodestar.export.traces import CallCounter, served
from lodestar.layers.lookup_observer import observe_lookups


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Attributes:
        examples: Number of examples in the batch.
        signatures: Signatures that were compared, including `serve`.
        max_difference: Largest difference of all outputs.
        outputs: Output name -> its largest difference.
    """

    examples: int
    signatures: tuple[str, ...]
    max_difference: float
    outputs: dict[str, OutputDifference]


@explained()
def verify(
    model: Model,
    path: StrPath,
    batch: Any,
    atol: float = 1e-5,
    *,
    outputs: Sequence[str] | None = None,
) -> Verification:
    """Checks that an export returns the scores of `model`.

    Loads the folder of `save` or `save_plain`, and runs a batch through `serve`
    and all signatures but `evaluate`, including `from_rows` with the rows that
    the model looks up. An export with `follow` serves the newest snapshot of
    its folder.

    >>> lodestar.export.save(model, path)
    >>> lodestar.export.verify(model, path, features).max_difference < 1e-6
    True

    Args:
        model: The exported model.
        path: Path to the exported folder.
        batch: Input of the model without labels: a dict by name, a list, or a
            single input. A dense tensor for a ragged input has rows of equal
            length. If requests hold strings, pass strings; with the ids of
            datasets, only `serve_ids` is checked.
        atol: Largest accepted difference of two numbers. NaN equals NaN, and
            strings must be equal.
        outputs: Names of outputs whose values are compared. Defaults to all.
            For top-k outputs compare the scores, since items of nearly equal
            scores may be in another order.

    Returns:
        A `Verification` with the largest differences.

    Raises:
        ValueError: Scores, or names, shapes or dtypes of outputs differ;
            `atol` is negative or NaN; an output is unknown; `batch` does not
            fit the model or the export's signature; or the folder has an
            unknown signature or `features.json`.
        tf.errors.OpError, OSError: The folder cannot be loaded.
    """
    check_model_first("export.verify", model, path)
    if not (is_number(atol) and atol >= 0):
        raise ValueError(f"`atol` must be at least 0, got {atol!r}.")
    path = os.fspath(path)
    document = features_json.read(path)
    request = _request(model, document)
    inputs = request.inputs
    if inputs is not request.own:
        named = batches.named(batch, inputs.specs)
        if not requests.holds_strings(named, inputs):
            inputs = request.own
    features = batches.by_name(batch, inputs.specs)
    calls = CallCounter()
    rows = {}

    def see(lookup: Any) -> tf.Tensor:
        rows[calls.next(lookup)] = lookup.rows
        return lookup.rows

    with observe_lookups(see):
        wanted = served(model, inputs)(features)
    if outputs is None:
        outputs = list(wanted)
    for name in outputs:
        if name not in wanted:
            raise ValueError(
                f"`outputs` has {name!r}, but the model has {sorted(wanted)}."
                f"{did_you_mean(name, wanted)}"
            )
    loaded = tf.saved_model.load(path)
    worst: dict[str, OutputDifference] = {}
    if hasattr(loaded, "serve_ids") and inputs is request.own:
        results = {"serve_ids": loaded.serve_ids(features)}
    else:
        results = dict(_results(loaded, document, request, features, rows))
    for signature, found in results.items():
        if set(wanted) != set(found):
            raise MismatchError(
                f"The model has the outputs {sorted(wanted)}, but the export "
                f"{sorted(found)} through {signature!r}."
            )
        for name in outputs:
            here = compare(name, wanted[name], found[name], signature, atol)
            worst.setdefault(name, here)
            if here.max_difference > worst[name].max_difference:
                worst[name] = here
    return Verification(
        examples=batches.size(features),
        signatures=tuple(results),
        max_difference=max(
            (d.max_difference for d in worst.values()), default=0.0
        ),
        outputs=worst,
    )


def _request(model: keras.Model, document: Mapping[str, Any]) -> Request:
    """Returns the request of an export of `model`."""
    specs = features_json.specs_of(document)
    own = signatures.model_inputs(
        model, specs if document["inputs_given"] else None
    )
    if set(own.specs) != set(specs):
        raise MismatchError(
            f"The model has the inputs {sorted(own.specs)}, but the export "
            f"{sorted(specs)}."
        )
    return requests.request_for(
        own,
        document["signature"],
        features_json.padding_of(document),
        any(specs[x].dtype == tf.string for x in requests.text_columns(own)),
    )


def _results(
    loaded: Any,
    document: Mapping[str, Any],
    request: Request,
    features: Mapping[str, Any],
    rows: Mapping[Any, Any],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each signature and its outputs."""
    if hasattr(loaded, "serve_ids"):
        ids = requests.ids_maker(request.own)(features)
        yield "serve_ids", loaded.serve_ids(ids)
    yield "serve", loaded.serve(dict(features))
    for name, function in loaded.signatures.items():
        if name in follow.SIGNATURES or name == "evaluate":  # needs labels
            continue
        if name == "serving_default":
            arguments = request.plain.flatten(features)
        elif name == "from_rows":
            flat = request.plain_beside_rows.flatten(features)
            arguments = _rows_arguments(document, flat, rows)
        else:
            raise ValueError(
                f"The export has the unknown signature {name!r}; `verify` "
                "supports 'serving_default' and 'from_rows'."
            )
        yield name, function(**arguments)


def _rows_arguments(
    document: Mapping[str, Any],
    flat: Mapping[str, tf.Tensor],
    rows: Mapping[Any, Any],
) -> dict[str, tf.Tensor]:
    places = features_json.rows_of(document)
    arguments = {}
    for entry in document["signatures"]["from_rows"]["arguments"]:
        name = entry["name"]
        if name not in places:
            arguments[name] = flat[name]
        elif places[name] in rows:
            arguments[name] = rows[places[name]]
        else:
            raise MismatchError(
                f"`from_rows` takes the rows of {places[name]}, but the model "
                f"looks up {list(rows)}."
            )
    return arguments
