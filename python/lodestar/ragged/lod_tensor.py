"""LoDTensor: rows with levels of nested sequences over them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES, as_int64, as_vector, check_least
from lodestar._typing import TensorLike
from lodestar.ops import lod_ops, symbolic_build
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import (
    nested_lists,
    padding,
    paddle_stream,
    parts,
    serialization,
    text,
)
from lodestar.ragged.arguments import (
    as_levels,
    as_one_level_or_more,
    as_values,
    check_has_values,
    nested,
    validated,
)


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

    class Spec:
        """What `tf.function`, `tf.data` and SavedModels know of a LoDTensor.

        >>> LoDTensor.Spec([None, 16], tf.float32, num_levels=2)

        Args:
            shape: Of `values`; None is unknown, an unknown rank, too.
            dtype: Of `values`.
            num_levels: How many levels.
        """

        def __init__(
            self,
            shape: Any = None,
            dtype: tf.DType = tf.float32,
            num_levels: int = 1,
        ):
            """Takes any number of rows and units unless `shape` says more."""
            self.values = tf.TensorSpec(shape, dtype)
            self.lod = (tf.TensorSpec([None], tf.int64),) * num_levels

        def components(self, prefix: str = "") -> dict[str, tf.TensorSpec]:
            """Returns the specs of the tensors that `components` returns."""
            names = serialization.names(len(self.lod), prefix)
            return {
                name: tf.TensorSpec(spec.shape, spec.dtype, name)
                for name, spec in zip(
                    names, (self.values, *self.lod), strict=True
                )
            }

    def __init__(self, values: TensorLike, lod: Sequence[TensorLike]):
        """Takes offsets, int64 or int32, that are known to nest."""
        self.values = as_values(values)
        self.lod = as_levels("lod", lod)

    @classmethod
    def from_offsets(
        cls,
        values: TensorLike,
        levels: Sequence[TensorLike],
        order: str = "outer_first",
        absolute: bool = False,
    ) -> "LoDTensor":
        """Builds one from offsets.

        Args:
            values: `[N, ...]`.
            levels: Offset vectors, int64 or int32, each starting at 0. Messages
                count them from the outermost one.
            order: "outer_first" or "inner_first", the order of `levels`.
            absolute: Whether every level indexes rows, not the next level.
                Empty units then belong to the unit after them.

        Raises:
            ValueError: another order, no level, a level that is no vector.
            tf.errors.InvalidArgumentError: levels that do not nest over the
                rows (names level and index).
        """
        if order not in ("outer_first", "inner_first"):
            raise ValueError(
                f"`order` is {order!r}, wanted 'outer_first' or 'inner_first'"
            )
        values = as_values(values)
        levels = as_one_level_or_more("levels", levels)
        if order == "inner_first":
            levels = levels[::-1]
        if absolute:
            levels = lod_ops.lod_from_absolute(levels)
        return cls._checked(values, levels)

    @classmethod
    def from_lengths(
        cls,
        values: TensorLike,
        lengths: Sequence[TensorLike],
        absolute: bool = False,
    ) -> "LoDTensor":
        """Builds one from `recursive_sequence_lengths`, outermost level first.

        >>> absolute = [[9, 1, 5], [3, 2, 4, 1, 2, 3]]
        >>> x = LoDTensor.from_lengths(range(15), absolute, absolute=True)
        >>> [level.numpy().tolist() for level in x.lengths()]
        [[3, 1, 2], [3, 2, 4, 1, 2, 3]]

        Args:
            values: `[N, ...]`.
            lengths: Vectors of unit lengths, int64 or int32.
            absolute: Whether the lengths of every level count rows, not units
                of the next level. Empty units then belong to the unit after
                them.

        Raises:
            ValueError: no level, or a level that is no vector.
            tf.errors.InvalidArgumentError: a negative length, or lengths that
                do not add up (names level and index, absolute ones as offsets).
        """
        values = as_values(values)
        lengths = as_one_level_or_more("lengths", lengths)
        levels = lod_ops.lod_from_lengths(lengths)
        if absolute:
            levels = lod_ops.lod_from_absolute(levels)
        return cls._checked(values, levels)

    @classmethod
    def _checked(
        cls, values: TensorLike, levels: Sequence[tf.Tensor]
    ) -> "LoDTensor":
        return cls(*validated(values, levels))

    @classmethod
    def from_ragged(cls, ragged: tf.RaggedTensor) -> "LoDTensor":
        """Takes the buffers of a RaggedTensor; one level per ragged dimension.

        Also accepts a KerasTensor: layers that take the result by keyword then
        get a LoDTensor when the functional model runs. To end such a model, call
        `LoDTensor.to_ragged` on the symbolic result.

        Raises:
            TypeError: not a RaggedTensor.
            tf.errors.InvalidArgumentError: row splits that do not nest, which
                a RaggedTensor of `validate=False` may hold.
        """
        return _from_ragged(ragged)

    def to_ragged(self) -> tf.RaggedTensor:
        """Returns a RaggedTensor over the same buffers."""
        return _to_ragged(self)

    @classmethod
    def from_sparse(
        cls, sparse_tensor: tf.SparseTensor, columns: str = "keep"
    ) -> "LoDTensor":
        """Takes the values of a SparseTensor; a level fewer than dimensions.

        An upper level has as many units as its indices name, so that those at
        its end that are empty do not come back from `to_sparse`; level 0 has
        `dense_shape[0]`.

        Args:
            sparse_tensor: Of static rank 2 or more, in row-major order;
                `tf.sparse.reorder` makes it so.
            columns: "keep" wants an innermost unit's values side by side from
                column 0, so that their places say what their columns were.
                "drop" takes them from any columns, whose numbers are lost: a
                diagonal matrix gives units of one value each.

        Raises:
            TypeError: not a SparseTensor.
            ValueError: no static rank of 2 or more; other `columns`.
            tf.errors.InvalidArgumentError: indices that repeat, are out of
                order or of `dense_shape`, or leave a gap that "keep" does not
                take (names index and value).
        """
        if columns not in ("keep", "drop"):
            raise ValueError(
                f"`columns` is {columns!r}, wanted 'keep' or 'drop'"
            )
        if not isinstance(sparse_tensor, tf.SparseTensor):
            raise TypeError(
                f"`sparse` must be a SparseTensor, found {type(sparse_tensor)}"
            )
        rank = sparse_tensor.shape.rank
        if rank is None or rank < 2:
            raise ValueError(
                "`sparse` must have a static rank of 2 or more, found shape "
                f"{sparse_tensor.shape}"
            )
        levels = lod_ops.lod_from_sparse(
            sparse_tensor.indices,
            sparse_tensor.dense_shape,
            rank - 1,
            columns == "drop",
        )
        return cls(sparse_tensor.values, tuple(levels))

    def to_sparse(self) -> tf.SparseTensor:
        """Returns a SparseTensor: a dimension a level, one for rows.

        Further dimensions of the rows become dimensions of it.

        Raises:
            ValueError: no level.
        """
        if not self.lod:
            raise ValueError("`to_sparse` needs a level, found none")
        return self.to_ragged().to_sparse()

    @classmethod
    def from_padded(
        cls, padded: TensorLike, lengths: TensorLike
    ) -> "LoDTensor":
        """Takes the first `lengths[b]` steps of each row b.

        Args:
            padded: `[B, T, ...]`.
            lengths: int64 or int32 `[B]`, each 0 to T.

        Raises:
            TypeError, ValueError, tf.errors.InvalidArgumentError: As
                `lodestar.sequence.unpad`.
        """
        rows, splits = padding.from_padded(padded, lengths)
        return cls(rows, (splits,))

    def to_padded(
        self, pad_value: TensorLike | None = None, maxlen: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `[B, T, ...]`, and the lengths `[B]` of the last level.

        Args:
            pad_value: A number or one step; None is zero.
            maxlen: T; None is the longest length.

        Raises:
            TypeError, ValueError, tf.errors.InvalidArgumentError: As
                `lodestar.sequence.pad`.
        """
        rows, levels = nested("x", self.values, self.lod, MOVED_DTYPES)
        return padding.to_padded(rows, levels[-1], pad_value, maxlen)

    @classmethod
    def from_nested_lists(
        cls, rows: Any, dtype: Any = None, num_levels: int | None = None
    ) -> "LoDTensor":
        """Builds one from nested Python lists, tuples or NumPy arrays.

        >>> LoDTensor.from_nested_lists([[[1, 2], [3]], []])
        <LoDTensor [[[1, 2], [3]], []] levels=2>

        Args:
            rows: Lists in lists.
            dtype: Of the values; None takes what TensorFlow takes for the
                numbers, float32 if there are none.
            num_levels: None makes a level of every list but the innermost ones,
                by the deepest. With fewer, what stands below the levels is a
                row, and all rows have one shape.

        Raises:
            TypeError: not a list.
            ValueError: a number where a list is wanted or the other way around,
                rows of different shapes, values of another dtype (names the
                place).
        """
        return cls(*nested_lists.from_nested_lists(rows, dtype, num_levels))

    def to_list(self) -> list[Any]:
        """Returns nested Python lists.

        Raises:
            ValueError: in a graph, which has no values.
        """
        check_has_values("to_list", self.values)
        if not self.lod:
            return self.values.numpy().tolist()
        return self.to_ragged().to_list()

    def components(self, prefix: str = "") -> dict[str, tf.Tensor]:
        """Returns "values", "lod_0", "lod_1" and so on.

        What signatures of SavedModels take and give, which know tensors only.

        Args:
            prefix: What every name begins with, to tell several LoDTensors
                apart.
        """
        names = serialization.names(self.num_levels, prefix)
        return dict(zip(names, (self.values, *self.lod), strict=True))

    @classmethod
    def from_components(
        cls, components: Mapping[str, Any], prefix: str = ""
    ) -> "LoDTensor":
        """Builds one from what `components` returned.

        Args:
            components: Tensors by name; names without the prefix are left
                alone.
            prefix: As given to `components`.

        Raises:
            ValueError: names that are missing or are none of these.
            tf.errors.InvalidArgumentError: levels that do not nest over the
                rows.
        """
        return cls(*serialization.from_components(components, prefix))

    def serialize(self) -> tf.Tensor:
        """Returns a string scalar, which `parse` reads.

        It is `tf.io.serialize_tensor` of a string vector: the serialized
        values, then the serialized levels.
        """
        return serialization.serialize(self.values, self.lod)

    @classmethod
    def parse(
        cls, serialized: TensorLike, dtype: tf.DType, num_levels: int = 1
    ) -> "LoDTensor":
        """Reads what `serialize` wrote; also in graphs and `tf.data`.

        Args:
            serialized: A string scalar.
            dtype: Of the values.
            num_levels: How many levels were written.

        Raises:
            ValueError: `num_levels` below 0.
            tf.errors.InvalidArgumentError: a string that is none of these,
                holds another dtype or number of levels, or levels that do not
                nest.
        """
        return cls(*serialization.parse(serialized, dtype, num_levels))

    def to_paddle_stream(self) -> bytes:
        """Returns the bytes in which Paddle saves a tensor with its LoD.

        Raises:
            ValueError: in a graph, which has no values.
            TypeError: a dtype that Paddle does not have, such as string.
        """
        check_has_values("to_paddle_stream", self.values)
        return paddle_stream.write(
            self.values.numpy(), [level.numpy() for level in self.lod]
        )

    @classmethod
    def from_paddle_stream(cls, stream: bytes) -> "LoDTensor":
        """Reads one such tensor, as a file of Paddle holds it.

        Raises:
            ValueError: bytes that are none, or more (says what and where).
            tf.errors.InvalidArgumentError: levels that do not nest over the
                rows.
        """
        values, levels = paddle_stream.read(stream)
        return cls._checked(as_values(values), as_levels("lod", levels))

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

    def level(self, level: int) -> "LoDTensor":
        """Returns the same rows without the levels above `level`.

        Its units are the units of `level`: `len(x.level(1))`, `x.level(1)[2]`
        and `for unit in x.level(1)`. Copies nothing.

        Raises:
            ValueError: `level` is not one of the levels.
        """
        self._check_level(level)
        return LoDTensor(self.values, self.lod[level:])

    def __len__(self) -> int:
        """The number of outermost units; of rows, if there is no level.

        Raises:
            TypeError: a graph does not know it.
        """
        count = self._count_units()
        if not isinstance(count, int):
            raise TypeError(
                "`len` of a LoDTensor whose units a graph does not know; "
                "`tf.size(x.lod[0]) - 1` is a tensor of it"
            )
        return count

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a LoDTensor is neither true nor false; ask `len(x) > 0`, or "
            "`x is not None`"
        )

    def __getitem__(self, key: Any) -> Any:
        """Outermost unit `key`, or the units of a slice such as `x[1:3]`.

        Args:
            key: An integer, which counts from the end if it is negative, also a
                scalar tensor; or a slice of step 1, whose bounds are cut to
                what there is, as those of a list are.

        Returns:
            Of an integer what the unit holds: a LoDTensor of a level less, or
            of the only level its rows, a Tensor. Of a slice a LoDTensor.

        Raises:
            TypeError: another key.
            ValueError: another step.
            IndexError: no such unit; in a graph that does not know how many
                there are an InvalidArgumentError.
        """
        count = self._count_units()
        if isinstance(key, slice):
            return self._units(*parts.slice_bounds(key, count))
        index = parts.unit_index(key, count)
        if not self.lod:
            return self.values[index]
        unit = self._units(index, index + 1)
        return unit.level(1) if unit.num_levels > 1 else unit.values

    def __iter__(self) -> Iterator[Any]:
        """Yields what `self[i]` is, unit by unit.

        Raises:
            TypeError: a graph does not know how many there are.
        """
        return (self[i] for i in range(len(self)))

    def _units(self, begin: Any, end: Any) -> "LoDTensor":
        if not self.lod:
            return LoDTensor(self.values[begin:end], ())
        return self.slice(0, begin, end)

    def _count_units(self) -> int | tf.Tensor:
        """How many outermost units, or rows, there are; an int where known."""
        counted, extra = (self.lod[0], 1) if self.lod else (self.values, 0)
        count = counted.shape[:1].num_elements()
        if count is None:
            count = tf.shape(counted, out_type=tf.int64)[0]
        return count - extra

    def slice(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> "LoDTensor":
        """Returns units `[begin, end)` of a level, without the levels above.

        Offsets are rebased to 0, and the rows are those of the units.

        Raises:
            ValueError: `level` is not one of the levels.
            tf.errors.InvalidArgumentError: not 0 <= begin <= end <= units;
                units whose offsets do not nest (names index and value).
        """
        rows, levels = self._cut(level, begin, end)
        return LoDTensor(self.values[rows[0] : rows[1]], tuple(levels))

    def sub_lod(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """As `slice`, but says where the units are and moves no row.

        Returns:
            The lengths of the units of each level from `level` on, and their
            row range: int64 `[2]`, the first row and the row after the last
            one.
        """
        rows, levels = self._cut(level, begin, end)
        return LoDTensor(self.values, tuple(levels)).lengths(), rows

    def _check_level(self, level: int) -> None:
        if not 0 <= level < self.num_levels:
            raise ValueError(
                f"`level` is {level}, wanted 0 to {self.num_levels - 1}"
            )

    def _cut(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        self._check_level(level)
        return lod_ops.lod_slice(
            tf.shape(self.values, out_type=tf.int64)[0],
            as_int64("begin", begin, 0),
            as_int64("end", end, 0),
            self.lod,
            num_sliced=self.num_levels - level,
        )

    @staticmethod
    def concat(tensors: Sequence["LoDTensor"]) -> "LoDTensor":
        """Appends the units of all tensors, at every level, and their rows.

        Raises:
            ValueError: no tensor, different numbers of levels, rows of
                different shapes.
            TypeError: one is no LoDTensor; different dtypes.
        """
        tensors = list(tensors)
        for i, x in enumerate(tensors):
            if not isinstance(x, LoDTensor):
                raise TypeError(
                    f"`tensors[{i}]` must be a LoDTensor, found {type(x)}"
                )
        return LoDTensor(*parts.concat([(x.values, x.lod) for x in tensors]))

    def split(self, num_places: int) -> list["LoDTensor"]:
        """Splits the outermost units over places, as Paddle does for devices.

        Each part gets units // parts units, and the last one the remainder too.

        Returns:
            min(units, num_places) parts. `num_places` of them if there are no
            units, and in a graph that does not know how many there are; then
            those without units are empty.

        Raises:
            ValueError: `num_places` below 1.
        """
        check_least("num_places", num_places, 1)
        points = parts.split_points(self._count_units(), num_places)
        return [
            self._units(begin, end)
            for begin, end in zip(points[:-1], points[1:], strict=True)
        ]

    def reset_lod(self, lod: Any) -> "LoDTensor":
        """Returns the same rows under other levels; Paddle's `lod_reset`.

        Args:
            lod: Offset vectors as `from_offsets` takes them, or a LoDTensor or
                RaggedTensor whose levels to take.

        Raises:
            ValueError, tf.errors.InvalidArgumentError: As `from_offsets`.
        """
        if isinstance(lod, tf.RaggedTensor):
            lod = lod.nested_row_splits
        elif isinstance(lod, LoDTensor):
            lod = lod.lod
        return LoDTensor._checked(self.values, as_one_level_or_more("lod", lod))

    def append_lod(self, offsets: TensorLike) -> "LoDTensor":
        """Returns the same rows with one more level, the innermost.

        Paddle's `lod_append`. What was a row to the levels above is a unit of
        the new level: as many units as rows.

        Args:
            offsets: int64 or int32 `[N + 1]`.

        Raises:
            tf.errors.InvalidArgumentError: another number of offsets, or
                offsets that do not cover the rows (names level and index).
        """
        offsets = as_vector("offsets", offsets)
        return LoDTensor._checked(self.values, (*self.lod, offsets))

    def __repr__(self) -> str:
        if not hasattr(self.values, "numpy"):
            return f"<LoDTensor values={self.values} levels={self.num_levels}>"
        nested = text.nested(
            self.values.numpy(), [level.numpy() for level in self.lod]
        )
        return f"<LoDTensor {nested} levels={self.num_levels}>"


@takes_keras_tensors
def _from_ragged(ragged: tf.RaggedTensor) -> LoDTensor:
    ragged = symbolic_build.as_ragged(ragged)
    if not isinstance(ragged, tf.RaggedTensor):
        raise TypeError(
            f"`ragged` must be a RaggedTensor, found {type(ragged)}"
        )
    levels = [tf.cast(s, tf.int64) for s in ragged.nested_row_splits]
    return LoDTensor(*validated(ragged.flat_values, levels))


@takes_keras_tensors
def _to_ragged(x: LoDTensor | tf.RaggedTensor) -> tf.RaggedTensor:
    # A KerasTensor stands for either.
    if isinstance(x, tf.RaggedTensor):
        return x
    return tf.RaggedTensor.from_nested_row_splits(
        x.values, x.lod, validate=False
    )


def _refuse_to_be_a_tensor(
    x: LoDTensor, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> NoReturn:
    raise TypeError(
        "a LoDTensor is no tensor; take its `values`, `to_ragged()` or "
        "`to_padded()`"
    )


# TensorFlow would stack what has items, were they of one length.
tf.register_tensor_conversion_function(LoDTensor, _refuse_to_be_a_tensor)
