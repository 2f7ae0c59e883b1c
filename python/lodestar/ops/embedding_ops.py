"""Lookups of a row per id, and their gradients.

The gradient of a lookup with respect to its `hook` (`[0, D]`, of the table's
dtype) is
`tf.IndexedSlices(values=[U, D], indices=[U] ids, dense_shape=[-1, D])`:

- The indices are ids, so that slices of several lookups can be concatenated.
- `dense_shape` is int32 because the empty slices that `tf.cond` makes for the
  branch not taken are int32, and -1 so that any attempt to make the gradient
  dense fails instead of allocating 2^63 rows.
- The values have the hook's dtype, as TensorFlow and Keras expect. 16-bit values
  are summed in float32 and rounded once.
- Every component is made by an op of the backward graph: TensorFlow refuses a
  forward tensor if the lookup ran in an inner `tf.function`.
"""

import contextlib
from typing import get_args

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Combiner, Grads
from lodestar.ops import lost_gradients
from lodestar.ops.stand_ins import replaceable

COMBINERS: tuple[Combiner, ...] = get_args(Combiner)
WEIGHTED_COMBINERS = ("sum", "mean", "sqrtn")
ADMIT = {None: "policy", True: "all", False: "none"}
MISSING = ("zeros", "initial", "vector", "shared")


@replaceable
def find(
    handle: tf.Tensor,
    hook: tf.Tensor,
    ids: tf.Tensor,
    missing_row: tf.Tensor,
    *,
    missing: str = "zeros",
    padding_id: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads rows of int64 `ids` without writing anything; differentiable in `hook`.

    `missing_row` is `[D]` if `missing="vector"`, else `[0]`. `padding_id` reads
    zeros and gets no gradient. Returns the rows and, bool `ids.shape`, whether
    they were found.
    """
    return gen_ops.lodestar_embedding_find(
        handle,
        hook,
        ids,
        missing_row,
        missing=missing,
        use_padding=padding_id is not None,
        padding_id=padding_id or 0,
    )


def lookup_rows(
    handle: tf.Tensor,
    hook: tf.Tensor,
    ids: tf.Tensor,
    missing_row: tf.Tensor,
    *,
    missing: str,
    padding_id: int | None,
    insert: bool,
    count: bool,
    admit: bool | None,
) -> tf.Tensor:
    """As `find`, adding rows for new ids if `insert`; returns only the rows.

    With `count`, updates frequencies and last-seen steps. With `admit` True
    every new id gets a row, with False they are only counted, and with None the
    table decides.
    """
    inputs = (handle, hook, ids, missing_row)
    if not (insert or count):
        return find(*inputs, missing=missing, padding_id=padding_id)[0]
    rows, _, _ = gen_ops.lodestar_embedding_find_or_insert(
        *inputs,
        insert=insert,
        count=count,
        admit=ADMIT[admit],
        missing=missing,
        use_padding=padding_id is not None,
        padding_id=padding_id or 0,
    )
    return rows


def find_or_insert_unique(
    handle: tf.Tensor,
    ids: tf.Tensor,
    missing_row: tf.Tensor,
    *,
    insert: bool = True,
    count: bool = True,
    admit: bool | None = None,
    missing: str = "zeros",
    occurrences: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """As `lookup_rows`, for unique ids `[N]` and without a gradient.

    `occurrences`, int64 `[N]`, is for tables that count occurrences. Also returns, bool
    `[N]`, whether each id had a row before.
    """
    return gen_ops.lodestar_embedding_find_or_insert_unique(
        handle,
        ids,
        tf.zeros([0], tf.int64) if occurrences is None else occurrences,
        missing_row,
        insert=insert,
        count=count,
        admit=ADMIT[admit],
        missing=missing,
    )


tf.no_gradient("Lodestar>EmbeddingFindOrInsertUnique")


def on_cpu() -> contextlib.AbstractContextManager[None]:
    """Runs ops that do not use a table on the CPU, like most tables.

    TensorFlow would choose a GPU if there is one, and copy CPU tensors to it and back.
    """
    return tf.device("CPU")


def on_cpu_in_graphs() -> contextlib.AbstractContextManager[None]:
    """Surrounds lookups in host memory, for `beside`.

    In a graph, `beside` only sees the device scopes around an op, which may name a
    GPU. In eager mode it sees where the op ran.
    """
    return contextlib.nullcontext() if tf.executing_eagerly() else on_cpu()


def beside(tensor: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    """Runs ops that do not use a table on the GPU of `tensor`, or on the CPU."""
    if tensor.device:
        device = tf.DeviceSpec.from_string(tensor.device)
        if device.device_type == "GPU":
            return tf.device(tensor.device)
    return on_cpu()


def table_gradient(
    values: tf.Tensor, ids: tf.Tensor, dim: int
) -> tf.IndexedSlices:
    """Returns the gradient of a hook: `values` `[U, dim]` of `ids` `[U]`."""
    # If code makes the gradient dense by its shape, the error shows this name.
    # Conversion fails with an error of table_variable.py.
    shape = tf.constant(
        [-1, dim],
        tf.int32,
        name="use_lodestar.optimizers_and_lodestar.optimizers."
        "LossScaleOptimizer",
    )
    with beside(values):
        ids = tf.identity(ids)
    return tf.IndexedSlices(values, ids, shape)


@tf.RegisterGradient("Lodestar>EmbeddingFind")
def _find_gradient(op: tf.Operation, grad: tf.Tensor, *_: tf.Tensor) -> Grads:
    with beside(op.outputs[0]):
        unique = gen_ops.lodestar_embedding_unique(
            tf.reshape(op.inputs[2], [-1]),
            use_padding=op.get_attr("use_padding"),
            padding_id=op.get_attr("padding_id"),
        )
    return _rows_gradient(op, grad, *unique)


@tf.RegisterGradient("Lodestar>EmbeddingFindOrInsert")
def _find_or_insert_gradient(
    op: tf.Operation, grad: tf.Tensor, *_: tf.Tensor
) -> Grads:
    lost_gradients.reach(op, op.inputs[:1])
    return _rows_gradient(op, grad, *op.outputs[1:])


def _rows_gradient(
    op: tf.Operation,
    grad: tf.Tensor,
    unique_ids: tf.Tensor,
    positions: tf.Tensor,
) -> Grads:
    dim = op.inputs[1].shape[1]
    with beside(op.outputs[0]):
        values = gen_ops.lodestar_embedding_gradient(
            tf.reshape(grad, [-1, dim]), positions, unique_ids
        )
    of_ids = [None] * (len(op.inputs) - 2)
    return None, table_gradient(values, unique_ids, dim), *of_ids


@tf.RegisterGradient("Lodestar>EmbeddingGradient")
def _gradient_gradient(op: tf.Operation, grad: tf.Tensor) -> Grads:
    positions = op.inputs[1]
    rows = tf.gather(grad, tf.maximum(positions, 0))
    return (
        tf.where(positions[:, None] >= 0, rows, tf.zeros_like(rows)),
        None,
        None,
    )
