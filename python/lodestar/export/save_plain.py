"""SavedModels of plain TensorFlow ops."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._typing import StrPath
from lodestar.data.schema import model_schema
from lodestar.export import features_json, requests, signatures, traces
from lodestar.export.contents import ModelContents, model_contents
from lodestar.export.folder import whole_folder
from lodestar.export.plain import sequences
from lodestar.export.plain.graph_check import (
    captured,
    check_plain_ops,
    inner_functions_have_our_ops,
)
from lodestar.export.plain.id_index import INDEXES
from lodestar.export.plain.id_tables import PlainIdTables
from lodestar.export.plain.stored_rows import DTYPES
from lodestar.export.plain.tables import PlainTables
from lodestar.ops.stand_ins import stand_ins


def save_plain(
    model: keras.Model,
    path: StrPath,
    signature: str = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
    padding_id: Any = None,
    tables: str = "used",
    dtype: str | None = None,
    index: str = "hash",
    strings: bool = True,
) -> None:
    """Writes `model` for inference where no op library can be loaded.

    The folder has ops of plain TensorFlow only, so any TensorFlow serves it,
    and with `dtype=None` gives the scores that
    `save` gives, bit for bit on a CPU. `model` is as it was, and can be
    trained on. Not for a table that changes while it is exported.

    >>> lodestar.export.save_plain(model, "served")

    in a process that has TensorFlow only:

    >>> loaded = tf.saved_model.load("served")
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))
    >>> loaded.tables["user"].lookup(tf.constant([1, 2], tf.int64))

    Tables, each once, are in the folder's variables: ids and rows as they are,
    without optimizer slots and what admission and eviction know. Beside the
    signatures, `tables[name].lookup` reads their rows, `[N]` ids -> `[N, dim]`
    as `EmbeddingVariable.lookup`. docs/serving.md has the details.

    Args:
        model: As of `save`.
        path: As of `save`.
        signature: As of `save`.
        inputs: As of `save`.
        padding_id: As of `save`.
        tables: Which embedding variables are written: `"used"`, those that the
            scores read; or `"all"` of the model's, for `lookup`.
        dtype: How rows are stored: None as in the table; `"float16"`, each
            number rounded to the nearest; `"int8"` with a float32 scale for
            each row, largest absolute number / 127, so that a number is off by
            at most scale / 2 (and float32's rounding). What is read has the
            table's dtype in any case.
        index: How ids are found: `"hash"`, in a hash table that is made where
            the folder is loaded; or `"sorted"`, by binary search: slower on a
            CPU, but XLA compiles it and tf2onnx converts it.
        strings: As of `save`. XLA and tf2onnx take no strings.

    Raises:
        ValueError: Another `signature`, `tables`, `dtype` or `index`; inputs
            and `padding_id` as of `save`; the model writes to a table,
            or reads one that is an attribute of no layer; an op of the model
            has no stand-in (names it and its layer); a number that `dtype`
            cannot hold. Nothing is written then.
    """
    for name, value, known in (
        ("signature", signature, signatures.SIGNATURES),
        ("tables", tables, ("used", "all")),
        ("dtype", dtype, (None, *DTYPES)),
        ("index", index, INDEXES),
    ):
        check_choice(name, value, known)
    own_inputs = signatures.model_inputs(model, inputs)
    model_inputs = requests.as_requested(own_inputs) if strings else own_inputs
    plain = requests.plain_tensors(model_inputs, signature, padding_id)
    # With our own ops, to see what is read.
    own, lookups = traces.trace_serve(model, model_inputs)
    own = own.get_concrete_function()
    contents = _read_contents(model, captured(own), tables)
    plain_tables = PlainTables(contents.tables, index, dtype)
    plain_ids = PlainIdTables(contents.id_tables, index)
    functions = {
        **plain_tables.functions(),
        **plain_ids.functions(),
        **sequences.functions(),
    }
    inlined: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if inner_functions_have_our_ops(own):
        inlined = _inner_functions_inlined()
    module = tf.Module()
    module.serve = tf.function(
        traces.served(model, model_inputs),
        input_signature=[model_inputs.specs],
    )
    if model_inputs is not own_inputs:
        module.serve_ids = tf.function(
            traces.served(model, own_inputs), input_signature=[own_inputs.specs]
        )
    if own_inputs.schema is not None:
        module.schema_yaml = model_schema.as_function(own_inputs.schema)
    module.tables = plain_tables.modules
    module.id_tables = plain_ids.modules
    module.model_variables = [v.value for v in contents.weights]
    module.model_resources = contents.resources

    @tf.function(autograph=False)
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return module.serve(plain.unflatten(tensors))

    # Saving traces `serve` again.
    with stand_ins(functions), inlined:
        trace = serving_default.get_concrete_function(**plain.specs)
        check_plain_ops(trace, _layer_names(model))
        # Hooks, of no rows, and variables that are no weights.
        module.read_variables = list(trace.variables)
        document = features_json.describe(
            signature,
            model_inputs.specs,
            plain,
            trace.structured_outputs,
            contents,
            lookups,
            inputs_given=inputs is not None,
        )
        document["plain"] = {"dtype": dtype, "index": index}
        with whole_folder(path) as partial:
            tf.saved_model.save(
                module, partial, signatures={"serving_default": trace}
            )
            features_json.write(partial, document)
            if own_inputs.schema is not None:
                model_schema.write(own_inputs.schema, partial)


def _read_contents(
    model: keras.Model, read: set[int], tables: str
) -> ModelContents:
    """What `model` has of what is read; tables as `tables` says."""

    def only_read(named: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in named.items() if id(v.resource_handle) in read}

    contents = model_contents(model)
    if tables == "used":
        contents = contents._replace(tables=only_read(contents.tables))
    return contents._replace(
        id_tables=only_read(contents.id_tables),
        resources=[
            x for x in contents.resources if id(x.resource_handle) in read
        ],
    )


def _layer_names(model: keras.Model) -> list[str]:
    return [
        x.name
        for x in tf.train.TrackableView(model).descendants()
        if isinstance(x, keras.layers.Layer)
    ]


@contextlib.contextmanager
def _inner_functions_inlined() -> Iterator[None]:
    """Within, a tf.function that is called in a trace becomes part of it.

    A trace that it has from before would hold our ops, and one that it keeps
    from here would read the exported rows when the model calls it again.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
