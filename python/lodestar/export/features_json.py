"""features.json: the inputs, outputs and contents of an exported folder."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import file_error
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.export.contents import ModelContents
from lodestar.export.evaluate import Evaluation
from lodestar.export.requests import Request
from lodestar.export.signatures import PlainTensors, Specs
from lodestar.export.traces import LookupCall, RowsSignature, SeenLookup
from lodestar.ragged import LoDTensor
from lodestar.snapshot import id_contents, model_variables
from lodestar.version import __version__

FILE_NAME = "features.json"
FORMAT = "lodestar.features"
FORMAT_VERSION = 1
# Required keys.
_KEYS = ("signature", "padding_id", "inputs_given", "inputs", "signatures")


def write(folder: str, document: Mapping[str, Any]) -> None:
    """Writes `document` into an exported folder."""
    with tf.io.gfile.GFile(os.path.join(folder, FILE_NAME), "w") as file:
        file.write(json.dumps(document, indent=1) + "\n")


def read(folder: StrPath) -> dict[str, Any]:
    """Reads the file of an exported folder.

    Raises:
        FileError: The folder does not exist or has no such file.
        ValueError: The file is damaged or of another release.
    """
    folder = os.fspath(folder)
    path = os.path.join(folder, FILE_NAME)
    try:
        with open_input(path) as file:
            data = file.read()
    except FileNotFoundError:
        found = "does not exist"
        if tf.io.gfile.exists(folder):
            found = f"has no {FILE_NAME}"
        raise file_error(
            folder, reason=f"{found}, expected a folder of lodestar.export.save"
        ) from None
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != FORMAT:
        raise ValueError(
            f"{path} must have the format {FORMAT!r}, got {kind!r}."
        )
    if document.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} must have the format version {FORMAT_VERSION}, got "
            f"{document.get('format_version')!r}. It was written by Lodestar "
            f"{document.get('lodestar_version')}, and this is {__version__}."
        )
    absent = [key for key in _KEYS if key not in document]
    if absent:
        raise ValueError(f"{path} is damaged: it lacks {absent}.")
    return document


def describe(
    request: Request,
    outputs: Mapping[str, Any],
    contents: ModelContents,
    lookups: Sequence[SeenLookup],
    rows: RowsSignature | None = None,
    evaluation: Evaluation | None = None,
) -> dict[str, Any]:
    """Returns the content of features.json.

    `rows` is the signature `from_rows`, and `evaluation` is `evaluate`, if any.
    """
    plain = request.plain
    scores = _outputs(outputs)
    described = {
        "serving_default": {
            "arguments": _arguments(plain.specs, plain),
            "outputs": scores,
        }
    }
    if rows is not None:
        inputs = {lookup.at: lookup.inputs for lookup in lookups}
        of_rows = {
            name: {**at._asdict(), "inputs": inputs.get(at)}
            for name, at in rows.rows.items()
        }
        described["from_rows"] = {
            "arguments": _arguments(
                rows.specs, request.plain_beside_rows, of_rows
            ),
            "outputs": scores,
        }
    if evaluation is not None:
        of_labels = {
            name: {"output": output}
            for name, output in evaluation.labels.items()
        }
        described["evaluate"] = {
            "arguments": _arguments(evaluation.specs, plain, of_labels),
            "outputs": _outputs(evaluation.function.structured_outputs),
        }
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "lodestar_version": __version__,
        "signature": request.signature,
        "padding_id": {k: _plain(v) for k, v in plain.padding.items()},
        "inputs_given": request.own.given,
        "inputs": [_input(*item) for item in request.inputs.specs.items()],
        "signatures": described,
        "tables": [_table(k, t, lookups) for k, t in contents.tables.items()],
        "id_tables": [
            {
                "key": key,
                "name": table.name,
                "key_dtype": table.key_dtype.name,
                "size": int(table.size()),
                "vocabulary": id_contents.digest(contents.lookups[key])
                if key in contents.lookups
                else None,
            }
            for key, table in contents.id_tables.items()
        ],
        "model_variables": [
            {
                "path": path,
                "shape": list(v.shape),
                "dtype": str(v.dtype),
                "trainable": bool(v.trainable),
            }
            for path, v in model_variables.by_path(contents.weights).items()
        ],
    }


def specs_of(document: Mapping[str, Any]) -> Specs:
    """Returns the types of the inputs of requests."""
    kinds = {"sparse": tf.SparseTensorSpec, "ragged": tf.RaggedTensorSpec}
    specs = {}
    for entry in document["inputs"]:
        shape = [entry["shape"], tf.as_dtype(entry["dtype"])]
        if entry["kind"] == "ragged":
            shape.append(entry["ragged_rank"])
        kind = kinds.get(entry["kind"], tf.TensorSpec)
        specs[entry["name"]] = kind(*shape)
    return specs


def padding_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns input -> padding; None unless the signature is "padded"."""
    if document["signature"] != "padded":
        return None
    return {
        name: value.encode(errors="surrogateescape")
        if isinstance(value, str)
        else value
        for name, value in document["padding_id"].items()
    }


def rows_of(document: Mapping[str, Any]) -> dict[str, LookupCall]:
    """Returns argument of `from_rows` -> the lookup whose rows it takes."""
    return {
        entry["name"]: LookupCall(
            entry["layer"], entry["feature"], entry["call"]
        )
        for entry in document["signatures"]["from_rows"]["arguments"]
        if "layer" in entry
    }


def _input(name: str, spec: tf.TypeSpec) -> dict[str, Any]:
    entry = {
        "name": name,
        "kind": "dense",
        "dtype": spec.dtype.name,
        "shape": spec.shape.as_list(),
    }
    if isinstance(spec, tf.RaggedTensorSpec):
        entry.update(kind="ragged", ragged_rank=spec.ragged_rank)
    elif isinstance(spec, tf.SparseTensorSpec):
        entry["kind"] = "sparse"
    return entry


def _arguments(
    specs: Mapping[str, tf.TensorSpec],
    plain: PlainTensors,
    others: Mapping[str, Mapping[str, Any]] = {},
) -> list[dict[str, Any]]:
    """Returns the arguments of a signature.

    `others` maps arguments that are not part of an input to their meaning.
    """
    return [
        {
            "name": name,
            "dtype": spec.dtype.name,
            "shape": spec.shape.as_list(),
            **(others.get(name) or plain.arguments[name]._asdict()),
        }
        for name, spec in specs.items()
    ]


def _outputs(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_output(name, x) for name, x in sorted(outputs.items())]


def _output(name: str, output: Any) -> dict[str, Any]:
    if isinstance(output, LoDTensor):
        return {**_output(name, output.values), "lod_levels": output.num_levels}
    entry = {
        "name": name,
        "dtype": output.dtype.name,
        "shape": None if output.shape.rank is None else output.shape.as_list(),
    }
    if isinstance(output, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        entry["ragged_rank"] = output.ragged_rank
    return entry


def _table(
    key: str, table: EmbeddingVariable, lookups: Sequence[SeenLookup]
) -> dict[str, Any]:
    config = table.get_config()
    default_row = config["default_row"]
    seed, salt = config["seed"]
    return {
        "key": key,
        "name": table.name,
        "dim": table.output_dim,
        "dtype": table.dtype,
        "rows": int(table.size()),
        "missing": {"rule": "vector", "vector": default_row}
        if isinstance(default_row, list)
        else {"rule": "shared_rows", **default_row["config"]}
        if isinstance(default_row, dict)
        else {"rule": default_row},
        "initializer": config["embeddings_initializer"],
        "seed": seed,
        "init_salt": salt,
        "read_by": [
            {
                **at._asdict(),
                "inputs": inputs,
                "combiner": feature.combiner,
                "column": feature.column,
                "salt": feature.salt,
                "salt_word": feature._salt_word,
                "padding_id": feature._own_id(feature.padding_id),
                "padding_counts": feature.padding_counts,
                "default_id": feature._own_id(feature.default_id),
                "max_length": feature.max_length,
            }
            for at, feature, inputs in lookups
            if feature.table is table
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return value.item() if isinstance(value, np.generic) else value
