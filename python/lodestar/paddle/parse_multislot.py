"""Parser of MultiSlot lines that are already in a tensor."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._formats import SparseForm
from lodestar._library import gen_ops
from lodestar.data.schema_layout import SchemaLayout
from lodestar.schema import SchemaLike, as_schema


def parse_multislot(
    lines: tf.Tensor | Iterable[str | bytes],
    schema: SchemaLike,
    *,
    weights: Mapping[str, str] | None = None,
    sparse: SparseForm = "ragged",
    name: str | None = None,
) -> Any:
    r"""Parses lines of MultiSlot text, one sample each.

    Use it for lines that do not come from files: in a serving signature, or in
    `map` of a `tf.data.Dataset` of batches of lines.

    >>> from lodestar.data import Column
    >>> features, click = parse_multislot(
    ...     ["1 1 2 7 8\n", "1 0 0"], [Column.label("click"), Column.sparse("C1")])
    >>> features["C1"].to_list()
    [[7, 8], []]

    Args:
        lines: Lines, with or without their newlines: string `[B]`.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        weights: Id slot -> slot of its weights, as in `open_dataset`.
        sparse: Form of sparse slots, as in `ReadOptions`.
        name: Name of the operation.

    Returns:
        The element that `open_dataset` returns for a batch of these lines:
        `(features, label)`, or `features` without a label slot.

    Raises:
        ValueError: If `lines` is not a string vector, or `schema`, `weights` or
            `sparse` is invalid.
        tf.errors.InvalidArgumentError: If a line does not match the schema
            ("`text[3]`: slot 'C1' at byte 5: ..."; 3 is its index, from 0).
    """
    spec = as_schema(schema, weights)
    with tf.name_scope(name or "parse_multislot"):
        text: Any = lines
        if not tf.is_tensor(lines):
            one = isinstance(lines, (str, bytes))
            text = tf.constant(lines if one else list(lines), tf.string)
        if text.dtype != tf.string or text.shape.rank not in (None, 1):
            raise ValueError(
                "`lines` must be a string tensor of shape [B], got "
                f"{text.dtype.name} {text.shape}."
            )
        rows = None if text.shape.rank is None else text.shape[0]
        layout = SchemaLayout(spec, sparse=sparse, rows=rows)
        return layout.features_and_label(*parse_flat(text, layout))


def parse_flat(lines: tf.Tensor, layout: SchemaLayout) -> list[tf.Tensor]:
    """Parses lines of MultiSlot text to the flat tensors of a layout."""
    return gen_ops.lodestar_parse_multi_slot(
        text=lines, **layout.op_attributes()
    )
