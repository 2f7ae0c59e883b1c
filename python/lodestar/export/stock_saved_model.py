"""SavedModels of stock TensorFlow ops only."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.export import signatures
from lodestar.export.folder import whole_folder
from lodestar.export.stock.graph_check import check_stock_ops
from lodestar.export.stock.id_index import INDEXES
from lodestar.export.stock.stored_rows import DTYPES
from lodestar.export.stock.tables import StockTables
from lodestar.ops.stand_ins import stand_ins

_SIGNATURES = ("ragged", "values_and_lengths")


def stock_saved_model(
    model: keras.Model,
    path: str | os.PathLike,
    signature: str = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
    tables: str = "used",
    dtype: str | None = None,
    index: str = "hash",
) -> None:
    """Writes `model` for inference where no op library can be loaded.

    The folder holds ops of stock TensorFlow only: it is served by what knows
    nothing of Lodestar, and with `dtype=None` gives the scores that
    `saved_model` gives, bit for bit on a CPU. `model` is as it was, and can be
    trained on. Not for a table that changes while it is exported.

    >>> lodestar.export.stock_saved_model(model, "served")

    in a process that has TensorFlow only:

    >>> loaded = tf.saved_model.load("served")
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))
    >>> loaded.tables["user"].lookup(tf.constant([1, 2], tf.int64))

    Tables, each once, are in the folder's variables: ids and rows as they are,
    without optimizer slots and what admission and eviction know. Beside the
    signatures, `tables[name].lookup` reads their rows, `[N]` ids -> `[N, dim]`
    as `EmbeddingVariable.lookup`.

    Args:
        model: As of `saved_model`.
        path: As of `saved_model`.
        signature: As of `saved_model`.
        inputs: As of `saved_model`.
        tables: Which embedding variables are written: `"used"`, those that the
            scores read; or `"all"` of the model's, for `lookup`.
        dtype: How rows are stored: None as in the table; `"float16"`, each
            number rounded to the nearest; `"int8"` with a float32 scale for
            each row, largest absolute number / 127, so that a number is off by
            at most scale / 2 (and float32's rounding). What is read has the
            table's dtype in any case.
        index: How ids are found: `"hash"`, in a hash table that is made where
            the folder is loaded; or `"sorted"`, by binary search: slower on a
            CPU, but XLA compiles it.

    Raises:
        ValueError: Another `signature`, `tables`, `dtype` or `index`; the
            inputs are not known; an op of the model has no stand-in (names it
            and its layer); a number that `dtype` cannot hold; missing="initial"
            with an initializer that is not zeros, ones, constant or uniform.
            Nothing is written then.
    """
    for name, value, known in (
        ("signature", signature, _SIGNATURES),
        ("tables", tables, ("used", "all")),
        ("dtype", dtype, (None, *DTYPES)),
        ("index", index, INDEXES),
    ):
        if value not in known:
            raise ValueError(f"`{name}`={value!r} is not in {known}.")
    specs, pack = signatures.model_inputs(model, inputs)
    plain = signatures.plain_tensors(specs, signature)
    tracked = list(tf.train.TrackableView(model).descendants())
    stock = StockTables(
        [x for x in tracked if isinstance(x, EmbeddingVariable)], index, dtype
    )

    def serve(features: Mapping[str, Any]) -> dict[str, Any]:
        # A function inside the model that was traced before, or is called
        # after, must not be taken for what is traced here: TensorFlow keys its
        # traces by device functions too.
        with tf.compat.v1.device(lambda op: op.device):
            return signatures.named_outputs(
                model(pack(features), training=False)
            )

    module = tf.Module()
    module.serve = tf.function(serve, input_signature=[specs])

    @tf.function
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return serve(plain.unflatten(tensors))

    with stand_ins(stock.functions()):
        traces = [
            module.serve.get_concrete_function(),
            serving_default.get_concrete_function(**plain.specs),
        ]
    layers = [x.name for x in tracked if isinstance(x, keras.layers.Layer)]
    for trace in traces:
        check_stock_ops(trace, layers)
    if tables == "all":
        stock.make_all()
    module.tables = dict(stock.made())
    # What the graph reads besides: dense weights, hooks (of no rows), the
    # look-up tables of Keras's own layers.
    module.read_variables = list(
        {id(v): v for trace in traces for v in trace.variables}.values()
    )
    captured = {
        id(outer) for trace in traces for outer, _ in trace.graph.captures
    }
    module.read_resources = [
        x
        for x in tracked
        if isinstance(x, tf.saved_model.experimental.TrackableResource)
        and id(x.resource_handle) in captured
    ]
    # Saving traces `serve` again.
    with whole_folder(path) as partial, stand_ins(stock.functions()):
        tf.saved_model.save(
            module, partial, signatures={"serving_default": traces[1]}
        )
