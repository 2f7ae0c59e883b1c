"""LoDTensor: rows with levels of nested sequences over them."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar.ops import lod_ops


def _as_levels(name: str, levels) -> tuple[tf.Tensor, ...]:
    levels = tuple(
        tf.convert_to_tensor(level, dtype_hint=tf.int64) for level in levels
    )
    for k, level in enumerate(levels):
        if level.dtype not in (tf.int64, tf.int32):
            raise TypeError(
                f"`{name}[{k}]` has dtype {level.dtype.name}, wanted int64 or "
                "int32"
            )
        if level.shape.rank not in (None, 1):
            raise ValueError(
                f"`{name}[{k}]` must have rank 1, found shape {level.shape}"
            )
    return tuple(tf.cast(level, tf.int64) for level in levels)


def _as_one_level_or_more(name: str, levels) -> tuple[tf.Tensor, ...]:
    levels = _as_levels(name, levels)
    if not levels:
        raise ValueError(f"`{name}` is empty, wanted at least one level")
    return levels


def _as_values(values) -> tf.Tensor:
    if isinstance(values, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(f"`values` must be a Tensor, found {type(values)}")
    values = tf.convert_to_tensor(values)
    if values.shape.rank == 0:
        raise ValueError("`values` must have rank 1 or more, found a scalar")
    return values


class LoDTensor(tf.experimental.ExtensionType):
    """Rows, and levels of detail: nested sequences over them.

    The level-of-detail tensor of Paddle. `lod` holds offset vectors, outermost
    level first; level k indexes the units of level k + 1, the last one rows of
    `values`. A LoDTensor of L levels is a `tf.RaggedTensor` of ragged rank L,
    and the two share buffers: neither conversion copies values.

    >>> x = LoDTensor.from_lengths([[1.0], [2.0], [3.0]], [[2, 1]])
    >>> x.lod[0].numpy().tolist()
    [0, 2, 3]

    Build one by its `from_` methods, which check what they are given. The
    constructor takes offsets that are known to be right, and looks at dtypes
    and static ranks only.

    Attributes:
      values: `[N, ...]`, any dtype.
      lod: A tuple of int64 vectors.
    """

    __name__ = "lodestar.LoDTensor"

    values: tf.Tensor
    lod: tuple[tf.Tensor, ...]

    def __init__(self, values, lod):
        """Takes offsets, int64 or int32, that are known to nest."""
        self.values = _as_values(values)
        self.lod = _as_levels("lod", lod)

    @classmethod
    def from_offsets(
        cls,
        values,
        levels: Sequence,
        order: str = "outer_first",
        absolute: bool = False,
    ) -> "LoDTensor":
        """Builds one from offsets.

        Args:
          values: `[N, ...]`.
          levels: Offset vectors, int64 or int32, each starting at 0. Messages
            count them from the outermost one.
          order: "outer_first" or "inner_first", the order of `levels`.
          absolute: Whether every level indexes rows, not the next level. Empty
            units then belong to the unit after them.

        Raises:
          ValueError: another order, no level, a level that is no vector.
          tf.errors.InvalidArgumentError: levels that do not nest over the rows
            (names level and index).
        """
        if order not in ("outer_first", "inner_first"):
            raise ValueError(
                f"`order` is {order!r}, wanted 'outer_first' or 'inner_first'"
            )
        values = _as_values(values)
        levels = _as_one_level_or_more("levels", levels)
        if order == "inner_first":
            levels = levels[::-1]
        if absolute:
            levels = lod_ops.lod_from_absolute(levels)
        return cls._validated(values, levels)

    @classmethod
    def from_lengths(cls, values, lengths: Sequence) -> "LoDTensor":
        """Builds one from `recursive_sequence_lengths`, outermost level first.

        Args:
          values: `[N, ...]`.
          lengths: Vectors of unit lengths, int64 or int32.

        Raises:
          ValueError: no level, or a level that is no vector.
          tf.errors.InvalidArgumentError: a negative length, or lengths that do
            not add up (names level and index).
        """
        values = _as_values(values)
        lengths = _as_one_level_or_more("lengths", lengths)
        levels = lod_ops.lod_from_lengths(lengths)
        return cls._validated(values, levels)

    @classmethod
    def _validated(cls, values, levels) -> "LoDTensor":
        levels = lod_ops.lod_validate(
            tf.shape(values, out_type=tf.int64)[0], levels
        )
        return cls(values, tuple(levels))

    @classmethod
    def from_ragged(cls, ragged: tf.RaggedTensor) -> "LoDTensor":
        """Takes the buffers of a RaggedTensor; one level a ragged dimension.

        Raises:
          TypeError: not a RaggedTensor.
          tf.errors.InvalidArgumentError: row splits that do not nest, which
            a RaggedTensor of `validate=False` may hold.
        """
        if not isinstance(ragged, tf.RaggedTensor):
            raise TypeError(
                f"`ragged` must be a RaggedTensor, found {type(ragged)}"
            )
        levels = [tf.cast(s, tf.int64) for s in ragged.nested_row_splits]
        return cls._validated(ragged.flat_values, levels)

    def to_ragged(self) -> tf.RaggedTensor:
        """Returns a RaggedTensor over the same buffers."""
        return tf.RaggedTensor.from_nested_row_splits(
            self.values, self.lod, validate=False
        )

    @property
    def num_levels(self) -> int:
        """The number of levels."""
        return len(self.lod)

    def lengths(self) -> tuple[tf.Tensor, ...]:
        """Returns the lengths of units, a vector a level, outermost first."""
        return tuple(level[1:] - level[:-1] for level in self.lod)

    def absolute(self) -> tuple[tf.Tensor, ...]:
        """Returns every level in row offsets, outermost first."""
        return tuple(lod_ops.lod_to_absolute(self.lod))

    def slice(self, level: int, begin, end) -> "LoDTensor":
        """Returns units `[begin, end)` of a level, without the levels above.

        Offsets are rebased to 0, and the rows are those of the units.

        Raises:
          ValueError: `level` is not one of the levels.
          tf.errors.InvalidArgumentError: not 0 <= begin <= end <= units.
        """
        if not 0 <= level < self.num_levels:
            raise ValueError(
                f"`level` is {level}, wanted 0 to {self.num_levels - 1}"
            )
        begin = tf.cast(begin, tf.int64)
        end = tf.cast(end, tf.int64)
        units = tf.size(self.lod[level], out_type=tf.int64) - 1
        text = f"units of level {level} are cut to [begin, end), wanted "
        checks = [
            tf.debugging.assert_non_negative(begin, text + "begin >= 0"),
            tf.debugging.assert_less_equal(begin, end, text + "begin <= end"),
            tf.debugging.assert_less_equal(end, units, text + "end <= units"),
        ]
        # Eager checks raise at once and leave nothing to depend on.
        with tf.control_dependencies([c for c in checks if c is not None]):
            begin = tf.identity(begin)
        levels = []
        for offsets in self.lod[level:]:
            part = offsets[begin : end + 1]
            levels.append(part - part[0])
            begin, end = part[0], part[-1]
        return LoDTensor(self.values[begin:end], tuple(levels))

    def __repr__(self):
        if not hasattr(self.values, "numpy"):
            return f"<LoDTensor values={self.values} levels={self.num_levels}>"
        # As RaggedTensor prints it, without the middle of what is long.
        text = str(self.to_ragged() if self.lod else self.values.numpy())
        text = text.removeprefix("<tf.RaggedTensor ").removesuffix(">")
        text = " ".join(text.split())
        return f"<LoDTensor {text} levels={self.num_levels}>"
