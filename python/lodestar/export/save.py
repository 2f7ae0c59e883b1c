"""Exports models with Lodestar's ops."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_choice, check_model_first
from lodestar._typing import Model, StrPath
from lodestar.embedding import saved_state, stored_rows
from lodestar.export import evaluate, requests, signatures, traces
from lodestar.export.contents import ModelContents, model_contents
from lodestar.export.follow import FollowedModel, Follower, check_outside
from lodestar.export.padded import PaddingId
from lodestar.export.writer import write


@explained()
def save(
    model: Model,
    path: StrPath,
    signature: signatures.Signature = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
    padding_id: PaddingId | None = None,
    from_rows: bool = False,
    dtype: stored_rows.StoredDtype | None = None,
    strings: bool = True,
    follow: StrPath | None = None,
    poll_seconds: float | None = 1.0,
    metrics: evaluate.Metrics | None = None,
    labels: evaluate.Labels | None = None,
) -> None:
    """Exports `model` for inference, with the tables it reads.

    Unlike with `model.export`, `keras.Input(..., ragged=True)` keeps its type.
    Tables are written without optimizer slots. The folder appears, or is
    replaced, atomically.

    Loading needs `import lodestar` for the op library, but not the model's code:

    >>> import lodestar
    >>> loaded = tf.saved_model.load(path)
    >>> loaded.serve({"ids": tf.ragged.constant([[1, 2], [3]], tf.int64)})
    >>> loaded.serve(tf.ragged.constant([[1, 2], [3]], tf.int64))  # the only input
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))

    `features.json` in the folder lists the signatures with their arguments and
    outputs, the inputs, the tables and the weights. The loaded model has them as
    `loaded.tables[name]`, `loaded.id_tables[name]` and `loaded.model_variables`;
    `loaded.tables[name].resource_handle` refers to the rows of a table, unless it
    is on several devices.
    Outputs keep their names if the model returns a dict. A single tensor is
    `output_0`, and a list gives `output_0`, `output_1`, ... docs/serving.md has
    the details.

    A model with a schema (`Schema.of`) takes the values of its training files.
    For a column of ids with the encoding `"hash"` or `"hex"`, `serve` and
    `serving_default` take strings, which the graph converts to ids as the
    readers do, without strings of `na_values`. `serve_ids` takes ids instead,
    as datasets return them. The schema is in assets.extra/schema.yaml:
    `open_dataset(data, schema=path)` reads data with it, and `Schema.of(loaded)`
    returns it.

    Args:
        model: A built Keras model.
        path: Path to the folder to write.
        signature: How `serving_default`, whose arguments must be plain tensors,
            takes a ragged input `x`. `"ragged"`: as `x_values` and
            `x_row_splits`. `"values_and_lengths"`: as `x_values` and
            `x_lengths`. With several ragged axes, as `x_row_splits_0`, ...,
            outermost first. `"padded"`: as a dense `x` whose short rows are
            filled with `padding_id`. Dense inputs are `x`, and sparse ones
            `x_indices`, `x_values` and `x_dense_shape`. `"examples"`: takes
            only `examples`, a vector of serialized tf.Examples with one feature
            per input. `serve` always takes RaggedTensors. Characters that an
            identifier cannot have become `_`, except in `serve` and tf.Examples.
        inputs: Input name -> tf.TypeSpec, for a subclassed model, which is then
            called with a dict, or with the value of a single entry. Defaults to
            the inputs of a functional or sequential model.
        padding_id: Padding for `"padded"`: an integer, number or string, or a
            dict of these by input name. Only the end of a row is padding.
        from_rows: If True, adds the signature `from_rows`, for rows that are
            stored elsewhere. It takes the rows that embedding layers look up
            in place of ids, named after the layers and features.
        dtype: How the served tables store rows. None keeps a table's dtype.
            `"float16"` and `"bfloat16"` round to the nearest number. `"int8"`
            stores a float32 scale per row, its largest absolute value / 127
            but at least 2^-126, so that errors are at most scale / 2 (plus
            float32 rounding).
            Lookups return the table's dtype. Rows that are already as small
            stay as they are, as do `SharedRows`.
        strings: Whether requests hold strings for a schema's columns of ids
            with the encoding `"hash"` or `"hex"`. If False, they hold ids that
            the client computes with
            `lodestar.hash_ids(strings, column=hash_as or name)`.
        follow: Path to a snapshot folder, on the machine that serves, but not
            inside `path`, which the next export replaces. Any server with the
            op library then serves the rows and weights of the newest version,
            without another export; each call sees one version.
            The environment variable `LODESTAR_SNAPSHOTS` overrides the path.
            While the folder is missing or empty, the exported content is
            served. The signature `refresh` loads the newest version and returns
            its number, and `follower_stats` returns statistics. Both take no
            arguments.
        poll_seconds: Time between polls of `follow` by a thread of the server.
            None polls only when the model is loaded and `refresh` is called.
        metrics: Name -> keras.metrics.Metric. Adds the signature `evaluate`,
            which takes the arguments of `serving_default` and `labels`, and
            returns the metrics of these examples alone. For a model with
            several outputs: output -> {name -> metric}; the arguments are
            `labels_<output>`, and the results `<output>_<name>`.
        labels: tf.TensorSpec of `labels`; output -> tf.TensorSpec if `metrics`
            is by output. Defaults to float32 of the output's shape, and for
            metrics of Keras with sparse labels to int64 class numbers, without
            the output's last axis.

    Raises:
        ValueError: `signature` or `dtype` is unknown; the inputs are unknown or
            cannot be encoded; `padding_id` is missing or not of an input's
            type; with `from_rows`, a lookup returns rows that are not dense; with
            `follow`, the model has no table or one on devices, or `from_rows`
            is set; `dtype` cannot hold a number or would turn a row into zeros,
            or a table is on a GPU; the
            model changes a table although `training` is False; or a metric
            (named in the error) does not fit the output and labels, or has
            state that `reset_state` does not set.
    """
    check_model_first("export.save", model, path)
    check_choice("signature", signature, signatures.SIGNATURES)
    dtype = stored_rows.check_dtype(dtype)
    own = signatures.model_inputs(model, inputs)
    request = requests.request_for(own, signature, padding_id, strings)
    contents = model_contents(model)
    if dtype is not None:
        _check_in_host_memory(contents)
    module = _module(contents)
    described: dict[str, Any] = {}
    if follow is not None:
        if from_rows:
            raise ValueError("`from_rows` and `follow` cannot be combined.")
        check_outside(follow, path)
        module.follower = Follower(
            FollowedModel.of_contents(contents, own.schema),
            follow,
            poll_seconds,
        )
        described["follow"] = os.fspath(follow)
    if dtype is not None:
        described["dtype"] = dtype

    def traced(inputs: signatures.ModelInputs) -> tuple[Any, Any]:
        serve, lookups = traces.trace_serve(model, inputs)
        if follow is not None:
            serve = module.follower.following_serve(serve)
        return serve, lookups

    serve, lookups = traced(request.inputs)
    rows = None
    if from_rows:
        rows = traces.trace_from_rows(model, request, contents.tables)
    with saved_state.for_serving(dtype):
        write(
            path,
            module,
            request,
            serve,
            traced(own)[0] if request.inputs is not own else None,
            contents,
            lookups,
            metrics,
            labels,
            rows=rows,
            signatures=None if follow is None else module.follower.signatures(),
            described=described,
        )


def _check_in_host_memory(contents: ModelContents) -> None:
    for name, table in contents.tables.items():
        for part in table._parts:
            spec = tf.DeviceSpec.from_string(part.device or "")
            if spec.device_type == "GPU":
                raise ValueError(
                    f"`dtype` needs tables in host memory, but the table "
                    f"{name!r} is on {part.device}. Use dtype=None."
                )


def _module(contents: ModelContents) -> tf.Module:
    """Returns a module with the tables and variables that functions read."""
    module = tf.Module()
    # Servers look here for the tables' resources.
    module.tables = {
        name: table._parts[0] if len(table._parts) == 1 else table
        for name, table in contents.tables.items()
    }
    module.table_variables = list(contents.tables.values())
    module.id_tables = contents.id_tables
    module.model_variables = [v.value for v in contents.weights]
    module.model_state = [v.value for v in contents.state]
    module.model_resources = contents.resources
    return module
