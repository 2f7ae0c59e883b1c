"""Exports models with plain TensorFlow ops only."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_choice, check_model_first
from lodestar._typing import Model, StrPath
from lodestar.embedding import stored_rows
from lodestar.export import evaluate, requests, signatures, traces
from lodestar.export.contents import ModelContents, model_contents
from lodestar.export.padded import PaddingId
from lodestar.export.plain import sequences
from lodestar.export.plain.graph_check import (
    captured,
    check_plain_ops,
    inner_functions_have_our_ops,
)
from lodestar.export.plain.id_index import Index
from lodestar.export.plain.id_tables import PlainIdTables
from lodestar.export.plain.tables import PlainTables
from lodestar.export.writer import write
from lodestar.ops.stand_ins import stand_ins

# The tables that read the model, or all.
SavedTables: TypeAlias = Literal["used", "all"]


@explained()
def save_plain(
    model: Model,
    path: StrPath,
    signature: signatures.Signature = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
    padding_id: PaddingId | None = None,
    tables: SavedTables = "used",
    dtype: stored_rows.StoredDtype | None = None,
    index: Index = "hash",
    strings: bool = True,
    metrics: evaluate.Metrics | None = None,
    labels: evaluate.Labels | None = None,
) -> None:
    """Exports `model` for inference without Lodestar's op library.

    The folder contains plain TensorFlow ops only, so any TensorFlow serves it.
    With `dtype=None` and on a CPU, its scores equal `save`'s bit for bit.
    `model` is unchanged and can be trained further. Its tables must not change
    during the export.

    >>> lodestar.export.save_plain(model, "served")

    In a process with TensorFlow only:

    >>> loaded = tf.saved_model.load("served")
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))
    >>> loaded.tables["user"].lookup(tf.constant([1, 2], tf.int64))

    The folder's variables hold each table once, with ids and rows but without
    optimizer slots and the state of admission and eviction. In addition to the
    signatures, `tables[name].lookup` maps `[N]` ids to rows `[N, dim]`, as
    `EmbeddingVariable.lookup` does. docs/serving.md has the details.

    Args:
        model: A built Keras model.
        path: Path to the folder to write.
        signature: How `serving_default` takes ragged inputs; see `save`.
        inputs: Input name -> tf.TypeSpec, for a subclassed model; see `save`.
        padding_id: Padding for `signature="padded"`; see `save`.
        tables: Embedding variables to write: `"used"`, those that the scores
            read, or `"all"` of the model, for `lookup`.
        dtype: How rows are stored. None keeps the table's dtype; others are as
            in `save`.
        index: How ids are found: `"hash"`, in a hash table that is built on
            loading, or `"sorted"`, by binary search, which is slower on a CPU,
            but works with XLA and tf2onnx.
        strings: Whether requests hold strings for a schema's columns of ids;
            see `save`. XLA and tf2onnx do not support strings.
        metrics: Metrics that the signature `evaluate` returns; see `save`.
        labels: Types of the labels of `evaluate`; see `save`.

    Raises:
        ValueError: An argument is invalid, also as in `save`; the model writes
            to a table, or reads one that is not an attribute of a layer; an op
            has no plain replacement (names it and its layer); or `dtype` cannot
            hold a number. Nothing is written.
    """
    check_model_first("export.save_plain", model, path)
    for name, value, known in (
        ("signature", signature, signatures.SIGNATURES),
        ("tables", tables, get_args(SavedTables)),
        ("index", index, get_args(Index)),
    ):
        check_choice(name, value, known)
    dtype = stored_rows.check_dtype(dtype)
    own = signatures.model_inputs(model, inputs)
    request = requests.request_for(own, signature, padding_id, strings)
    # With Lodestar's ops, to find the tables that the model reads.
    with_our_ops, lookups = traces.trace_serve(model, request.inputs)
    with_our_ops = with_our_ops.get_concrete_function()
    contents = _read_contents(model, captured(with_our_ops), tables)
    plain_tables = PlainTables(contents.tables, index, dtype)
    plain_ids = PlainIdTables(contents.id_tables, index)
    functions = {
        **plain_tables.functions(),
        **plain_ids.functions(),
        **sequences.functions(),
    }
    inlined: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if inner_functions_have_our_ops(with_our_ops):
        inlined = _inner_functions_inlined()
    module = tf.Module()
    module.tables = plain_tables.modules
    module.id_tables = plain_ids.modules
    module.model_variables = [v.value for v in contents.weights]
    module.model_resources = contents.resources
    # Hooks, which have no rows, and variables other than weights.
    module.read_variables = []

    layers = [
        x.name
        for x in tf.train.TrackableView(model).descendants()
        if isinstance(x, keras.layers.Layer)
    ]

    def check(trace: Any) -> None:
        check_plain_ops(trace, layers)
        module.read_variables.extend(trace.variables)

    serve, serve_ids = (
        tf.function(traces.served(model, of), input_signature=[of.specs])
        for of in (request.inputs, own)
    )
    # Saving traces the functions again, so it must run in this context.
    with stand_ins(functions), inlined:
        write(
            path,
            module,
            request,
            serve,
            serve_ids,
            contents,
            lookups,
            metrics,
            labels,
            described={"plain": {"dtype": dtype, "index": index}},
            check=check,
        )


def _read_contents(
    model: keras.Model, read: set[int], tables: str
) -> ModelContents:
    """Returns what `model` reads; all of its tables if `tables` is "all"."""

    def is_read(resource: Any) -> bool:
        return id(resource.resource_handle) in read

    contents = model_contents(model)
    if tables == "used":
        used = {
            key: table
            for key, table in contents.tables.items()
            if any(map(is_read, table._parts))
        }
        contents = contents._replace(tables=used)
    return contents._replace(
        id_tables={k: v for k, v in contents.id_tables.items() if is_read(v)},
        resources=[*filter(is_read, contents.resources)],
    )


@contextlib.contextmanager
def _inner_functions_inlined() -> Iterator[None]:
    """Inlines every tf.function that is called in a trace.

    An earlier trace of such a function holds Lodestar's ops, and a new one
    would make later calls of the model read the exported rows.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
