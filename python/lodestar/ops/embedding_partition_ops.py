"""Look-ups in tables whose rows lie in several places.

Whoever pools makes the ids distinct, shares them out to the parts of the table,
fetches a row for each and puts the rows in the order of the ids again.
`id_hash.part_of_id` says which part an id is of.
"""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._library import gen_ops


def partition(
    ids: tf.Tensor, num_parts: int
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Shares ids out to the parts of a table.

    Args:
        ids: int64 `[N]`.
        num_parts: P, at least 1.

    Returns:
        The ids of each part, P int64 `[N_p]` in the order of `ids`, and places,
        int64 `[N]`: the index of each id among those of all parts, one part
        after another. `assemble` takes them.
    """
    parts, places = gen_ops.lodestar_embedding_partition(
        ids, num_parts=num_parts
    )
    return parts, places


def partition_rows(
    ids: tf.Tensor, rows: tf.Tensor, num_parts: int
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Shares ids out as `partition` does, each with its row.

    Args:
        ids: int64 `[N]`.
        rows: `[N, ...]`, of a floating dtype, int32 or int64.
        num_parts: P, at least 1.

    Returns:
        P pairs of ids `[N_p]` and rows `[N_p, ...]`; differentiable in rows.
    """
    shared = gen_ops.lodestar_embedding_partition_rows(
        ids, rows, num_parts=num_parts
    )
    return list(zip(shared.part_ids, shared.part_rows, strict=True))


def assemble(rows: Sequence[tf.Tensor], places: tf.Tensor) -> tf.Tensor:
    """Rows of all parts in the order of the ids that were shared out.

    Args:
        rows: P `[N_p, ...]`, of one floating dtype, int32 or int64.
        places: int64 `[N]`, as `partition` gave them.

    Returns:
        `[N, ...]`: as `tf.gather(tf.concat(rows, 0), places)`, with one copy;
        differentiable in rows.
    """
    return gen_ops.lodestar_embedding_assemble(rows, places)


@tf.RegisterGradient("Lodestar>EmbeddingAssemble")
def _assemble_gradient(
    op: tf.Operation, grad: tf.Tensor
) -> list[tf.Tensor | None]:
    *rows, places = op.inputs
    sizes = tf.stack([tf.shape(x, tf.int64)[0] for x in rows])
    sums = tf.math.unsorted_segment_sum(
        tf.convert_to_tensor(grad), places, tf.reduce_sum(sizes)
    )
    return [*tf.split(sums, sizes), None]


@tf.RegisterGradient("Lodestar>EmbeddingPartitionRows")
def _partition_rows_gradient(
    op: tf.Operation, *grads: tf.Tensor
) -> tuple[None, tf.Tensor]:
    num_parts = op.get_attr("num_parts")
    rows = [tf.convert_to_tensor(x) for x in grads[num_parts : 2 * num_parts]]
    return None, assemble(rows, op.outputs[-1])
