"""LoDTensor: rows with levels of nested sequences over them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import tensorflow as tf

from lodestar import _bases
from lodestar._checks import MOVED_DTYPES, as_int64, as_vector, check_count
from lodestar._typing import DTypeLike, TensorLike
from lodestar.ops import symbolic_build
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import levels as conversions
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

# Order of levels, and what to do with columns of a SparseTensor.
LevelOrder: TypeAlias = Literal["outer_first", "inner_first"]
Columns: TypeAlias = Literal["keep", "drop"]


class LoDTensor(_bases.ExtensionType):
    """Rows with levels of nested sequences over them: Paddle's level-of-detail tensor.

    `lod` holds offset vectors, outermost level first. Level k indexes the units
    of level k + 1, and the last one indexes rows of `values`. A LoDTensor with
    L levels is a `tf.RaggedTensor` of ragged rank L; conversions share the
    buffers.

    >>> x = LoDTensor.from_lengths([[1.0], [2.0], [3.0]], [[2, 1]])
    >>> x.lod[0].numpy().tolist()
    [0, 2, 3]

    Create one with a `from_` method, which validates its input. The constructor
    requires valid offsets and only checks dtypes and static ranks.

    Attributes:
        values: `[N, ...]`, any dtype.
        lod: A tuple of int64 vectors.
    """

    __name__ = "lodestar.LoDTensor"

    values: tf.Tensor
    lod: tuple[tf.Tensor, ...]

    class Spec:
        """The type of a LoDTensor in `tf.function`, `tf.data` and SavedModels.

        >>> LoDTensor.Spec([None, 16], tf.float32, num_levels=2)

        Args:
            shape: Shape of `values`. None is unknown, including the rank.
            dtype: Dtype of `values`.
            num_levels: Number of levels.
        """

        def __init__(
            self,
            shape: Any = None,
            dtype: tf.DType = tf.float32,
            num_levels: int = 1,
        ):
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
        """Requires: int64 or int32 offsets that nest."""
        self.values = as_values(values)
        self.lod = as_levels("lod", lod)

    @classmethod
    def from_offsets(
        cls,
        values: TensorLike,
        levels: Sequence[TensorLike],
        order: LevelOrder = "outer_first",
        absolute: bool = False,
    ) -> "LoDTensor":
        """Creates a LoDTensor from offsets.

        Args:
            values: `[N, ...]`.
            levels: Offset vectors, int64 or int32, each starting at 0. Errors count
                them from the outermost one.
            order: "outer_first" or "inner_first", the order of `levels`.
            absolute: Whether every level indexes rows instead of the next level.
                Empty units then belong to the unit after them.

        Raises:
            ValueError: `order` is unknown, or there is no level or no vector.
            tf.errors.InvalidArgumentError: Levels do not nest over the rows (names
                level and index).
        """
        if order not in get_args(LevelOrder):
            raise ValueError(
                "`order` must be 'outer_first' or 'inner_first', got "
                f"{order!r}."
            )
        values = as_values(values)
        levels = as_one_level_or_more("levels", levels)
        if order == "inner_first":
            levels = levels[::-1]
        if absolute:
            levels = conversions.from_absolute(levels)
        return cls._checked(values, levels)

    @classmethod
    def from_lengths(
        cls,
        values: TensorLike,
        lengths: Sequence[TensorLike],
        absolute: bool = False,
    ) -> "LoDTensor":
        """Creates a LoDTensor from `recursive_sequence_lengths`, outermost level first.

        >>> absolute = [[9, 1, 5], [3, 2, 4, 1, 2, 3]]
        >>> x = LoDTensor.from_lengths(range(15), absolute, absolute=True)
        >>> [level.numpy().tolist() for level in x.lengths()]
        [[3, 1, 2], [3, 2, 4, 1, 2, 3]]

        Args:
            values: `[N, ...]`.
            lengths: Vectors of unit lengths, int64 or int32.
            absolute: Whether the lengths of every level count rows instead of units
                of the next level. Empty units then belong to the unit after them.

        Raises:
            ValueError: There is no level, or a level is not a vector.
            tf.errors.InvalidArgumentError: Lengths are negative or do not add up
                (names level and index, absolute ones as offsets).
        """
        values = as_values(values)
        lengths = as_one_level_or_more("lengths", lengths)
        levels = conversions.from_lengths(lengths)
        if absolute:
            levels = conversions.from_absolute(levels)
        return cls._checked(values, levels)

    @classmethod
    def _checked(
        cls, values: TensorLike, levels: Sequence[tf.Tensor]
    ) -> "LoDTensor":
        return cls(*validated(values, levels))

    @classmethod
    def from_ragged(cls, ragged: tf.RaggedTensor) -> "LoDTensor":
        """Converts a RaggedTensor, with a level per ragged dimension; copies nothing.

        Also accepts a KerasTensor: layers that take the result by keyword then
        receive a LoDTensor when the functional model runs. End such a model
        with `LoDTensor.to_ragged` of the symbolic result.

        Raises:
            TypeError: Not a RaggedTensor.
            tf.errors.InvalidArgumentError: Row splits do not nest, which is possible
                with `validate=False`.
        """
        return _from_ragged(ragged)

    def to_ragged(self) -> tf.RaggedTensor:
        """Returns a RaggedTensor over the same buffers."""
        return _to_ragged(self)

    @classmethod
    def from_sparse(
        cls, sparse_tensor: tf.SparseTensor, columns: Columns = "keep"
    ) -> "LoDTensor":
        """Converts a SparseTensor of rank R to a LoDTensor with R - 1 levels.

        Level 0 has `dense_shape[0]` units. Other upper levels end with the last
        unit that has an index, so `to_sparse` does not restore empty units
        after it.

        Args:
            sparse_tensor: SparseTensor of static rank 2 or more, in row-major order;
                see `tf.sparse.reorder`.
            columns: "keep" requires the values of each innermost unit to be
                contiguous from column 0, so that positions are columns. "drop"
                accepts any columns and loses their numbers: a diagonal matrix
                becomes units of one value each.

        Raises:
            TypeError: Not a SparseTensor.
            ValueError: The static rank is below 2 or unknown, or `columns` is
                unknown.
            tf.errors.InvalidArgumentError: Indices are repeated, out of order or out
                of bounds, or leave a gap with "keep" (names index and value).
        """
        if columns not in get_args(Columns):
            raise ValueError(
                f"`columns` must be 'keep' or 'drop', got {columns!r}."
            )
        if not isinstance(sparse_tensor, tf.SparseTensor):
            raise TypeError(
                f"`sparse` must be a SparseTensor, got {type(sparse_tensor)}."
            )
        rank = sparse_tensor.shape.rank
        if rank is None or rank < 2:
            raise ValueError(
                "`sparse` must have a static rank of 2 or more, got shape "
                f"{sparse_tensor.shape}."
            )
        levels = conversions.from_sparse(
            sparse_tensor.indices,
            sparse_tensor.dense_shape,
            rank,
            columns == "drop",
        )
        return cls(sparse_tensor.values, levels)

    def to_sparse(self) -> tf.SparseTensor:
        """Converts to a SparseTensor with a dimension per level and one for rows.

        Inner dimensions of rows become further dimensions.

        Raises:
            ValueError: There is no level.
        """
        if not self.lod:
            raise ValueError("`to_sparse` requires at least one level, got 0.")
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
        """Returns padded rows `[B, T, ...]`, and the lengths `[B]` of the last level.

        Args:
            pad_value: A number or one step. Defaults to zero.
            maxlen: T. Defaults to the longest length.

        Raises:
            TypeError, ValueError, tf.errors.InvalidArgumentError: As
                `lodestar.sequence.pad`.
        """
        rows, levels = nested("x", self.values, self.lod, MOVED_DTYPES)
        return padding.to_padded(rows, levels[-1], pad_value, maxlen)

    @classmethod
    def from_nested_lists(
        cls,
        rows: Any,
        dtype: DTypeLike | None = None,
        num_levels: int | None = None,
    ) -> "LoDTensor":
        """Creates a LoDTensor from nested Python lists, tuples or NumPy arrays.

        >>> LoDTensor.from_nested_lists([[[1, 2], [3]], []])
        <LoDTensor [[[1, 2], [3]], []] levels=2>

        Args:
            rows: Nested lists.
            dtype: Dtype of the values. Defaults to TensorFlow's choice, or float32
                without numbers.
            num_levels: Number of levels. Defaults to the depth of the deepest list
                minus one. With fewer levels, the items below them are rows, which
                must have one shape.

        Raises:
            TypeError: `rows` is not a list.
            ValueError: A number is in place of a list or vice versa, or the shapes
                or dtypes of rows differ (names the place).
        """
        return cls(*nested_lists.from_nested_lists(rows, dtype, num_levels))

    def to_list(self) -> list[Any]:
        """Returns nested Python lists.

        Raises:
            ValueError: In a graph, which has no values.
        """
        check_has_values("to_list", self.values)
        if not self.lod:
            return self.values.numpy().tolist()
        return self.to_ragged().to_list()

    def components(self, prefix: str = "") -> dict[str, tf.Tensor]:
        """Returns a dict of the tensors "values", "lod_0", "lod_1" and so on.

        Signatures of SavedModels take and return tensors only:

        >>> spec = lodestar.ragged.LoDTensor.Spec([None], tf.int64, num_levels=2)
        >>> @tf.function
        ... def serve(**components):
        ...     x = lodestar.ragged.LoDTensor.from_components(components)
        ...     return lodestar.ragged.LoDTensor(x.values * 2, x.lod).components()
        >>> signature = serve.get_concrete_function(**spec.components())
        >>> sorted(signature.structured_outputs)
        ['lod_0', 'lod_1', 'values']

        Args:
            prefix: Prefix of every name, to distinguish several LoDTensors.
        """
        names = serialization.names(self.num_levels, prefix)
        return dict(zip(names, (self.values, *self.lod), strict=True))

    @classmethod
    def from_components(
        cls, components: Mapping[str, Any], prefix: str = ""
    ) -> "LoDTensor":
        """Creates a LoDTensor from the result of `components`.

        Args:
            components: Tensors by name; names without the prefix are ignored.
            prefix: The prefix passed to `components`.

        Raises:
            ValueError: Names are missing or unknown.
            tf.errors.InvalidArgumentError: Levels do not nest over the rows.
        """
        return cls(*serialization.from_components(components, prefix))

    def serialize(self) -> tf.Tensor:
        """Returns a string scalar for `parse`.

        It is `tf.io.serialize_tensor` of a string vector: the serialized
        values, then the serialized levels.
        """
        return serialization.serialize(self.values, self.lod)

    @classmethod
    def parse(
        cls, serialized: TensorLike, dtype: tf.DType, num_levels: int = 1
    ) -> "LoDTensor":
        """Parses the result of `serialize`, also in graphs and `tf.data`.

        Args:
            serialized: A string scalar.
            dtype: Dtype of the values.
            num_levels: Number of levels.

        Raises:
            ValueError: `num_levels` is below 0.
            tf.errors.InvalidArgumentError: The string is invalid, or has another
                dtype or number of levels, or levels that do not nest.
        """
        return cls(*serialization.parse(serialized, dtype, num_levels))

    def to_paddle_stream(self) -> bytes:
        """Returns the bytes in which Paddle saves a tensor with its LoD.

        Raises:
            ValueError: In a graph, which has no values.
            TypeError: Paddle does not have the dtype, such as string.
        """
        check_has_values("to_paddle_stream", self.values)
        return paddle_stream.write(
            self.values.numpy(), [level.numpy() for level in self.lod]
        )

    @classmethod
    def from_paddle_stream(cls, stream: bytes) -> "LoDTensor":
        """Parses a tensor with its LoD from a file of Paddle.

        Raises:
            ValueError: The bytes are invalid (names the position).
            tf.errors.InvalidArgumentError: Levels do not nest over the rows.
        """
        values, levels = paddle_stream.read(stream)
        return cls._checked(as_values(values), as_levels("lod", levels))

    @property
    def num_levels(self) -> int:
        """The number of levels."""
        return len(self.lod)

    def lengths(self) -> tuple[tf.Tensor, ...]:
        """Returns the lengths of units, one vector per level, outermost first."""
        return tuple(level[1:] - level[:-1] for level in self.lod)

    def absolute(self) -> tuple[tf.Tensor, ...]:
        """Returns every level as row offsets, outermost first."""
        return conversions.absolute(self.lod)

    def level(self, level: int) -> "LoDTensor":
        """Returns the same rows without the levels above `level`; copies nothing.

        The units of the result are the units of `level`: `len(x.level(1))`,
        `x.level(1)[2]` and `for unit in x.level(1)`.

        Raises:
            ValueError: There is no such level.
        """
        self._check_level(level)
        return LoDTensor(self.values, self.lod[level:])

    def __len__(self) -> int:
        """Returns the number of outermost units, or of rows without levels.

        Raises:
            TypeError: A graph does not know the number.
        """
        count = self._count_units()
        if not isinstance(count, int):
            raise TypeError(
                "The graph does not know the `len` of this LoDTensor. Use "
                "`tf.size(x.lod[0]) - 1`, a tensor."
            )
        return count

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "A LoDTensor has no truth value. Use `len(x) > 0` or "
            "`x is not None`."
        )

    def __getitem__(self, key: Any) -> Any:
        """Returns outermost unit `key`, or the units of a slice such as `x[1:3]`.

        Args:
            key: An integer or scalar tensor, negative to count from the end; or a
                slice with step 1, whose bounds are clipped as in a list.

        Returns:
            For an integer, the content of the unit: a LoDTensor with one level less,
            or a Tensor of rows for the only level. For a slice, a LoDTensor.

        Raises:
            TypeError: `key` has another type.
            ValueError: The slice has another step.
            IndexError: There is no such unit (InvalidArgumentError in a graph that
                does not know the number of units).
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
        """Yields `self[i]` for each outermost unit.

        Raises:
            TypeError: A graph does not know the number of units.
        """
        return (self[i] for i in range(len(self)))

    def _units(self, begin: Any, end: Any) -> "LoDTensor":
        if not self.lod:
            return LoDTensor(self.values[begin:end], ())
        return self.slice(0, begin, end)

    def _count_units(self) -> int | tf.Tensor:
        """Returns the number of outermost units or rows, an int if known."""
        counted, extra = (self.lod[0], 1) if self.lod else (self.values, 0)
        count = counted.shape[:1].num_elements()
        if count is None:
            count = tf.shape(counted, out_type=tf.int64)[0]
        return count - extra

    def slice(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> "LoDTensor":
        """Returns units `[begin, end)` of a level, without the levels above.

        Offsets are rebased to 0, and only the rows of the units remain.

        Raises:
            ValueError: There is no such level.
            tf.errors.InvalidArgumentError: Not 0 <= begin <= end <= units, or
                offsets of the units do not nest.
        """
        rows, levels = self._cut(level, begin, end)
        return LoDTensor(self.values[rows[0] : rows[1]], levels)

    def sub_lod(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """Like `slice`, but returns positions and copies no rows.

        Returns:
            The lengths of the units of each level from `level` on, and their row
            range: int64 `[2]`, the first row and the row after the last one.
        """
        rows, levels = self._cut(level, begin, end)
        return LoDTensor(self.values, levels).lengths(), rows

    def _check_level(self, level: int) -> None:
        if not 0 <= level < self.num_levels:
            raise ValueError(
                f"`level` must be in [0, {self.num_levels - 1}], got {level}."
            )

    def _cut(
        self, level: int, begin: TensorLike, end: TensorLike
    ) -> tuple[tf.Tensor, conversions.Levels]:
        self._check_level(level)
        return conversions.cut(
            tf.shape(self.values, out_type=tf.int64)[0],
            self.lod[level:],
            as_int64("begin", begin, 0),
            as_int64("end", end, 0),
        )

    @staticmethod
    def concat(tensors: Sequence["LoDTensor"]) -> "LoDTensor":
        """Concatenates the units of all tensors, at every level, and their rows.

        Raises:
            ValueError: There is no tensor, or numbers of levels or row shapes
                differ.
            TypeError: A tensor is not a LoDTensor, or dtypes differ.
        """
        tensors = list(tensors)
        for i, x in enumerate(tensors):
            if not isinstance(x, LoDTensor):
                raise TypeError(
                    f"`tensors[{i}]` must be a LoDTensor, got {type(x)}."
                )
        return LoDTensor(*parts.concat([(x.values, x.lod) for x in tensors]))

    def split(self, num_places: int) -> list["LoDTensor"]:
        """Splits the outermost units over places, as Paddle does for devices.

        Each part gets units // parts units; the last one also gets the remainder.

        Returns:
            min(units, num_places) parts. Without units, or in a graph that does not
            know their number, `num_places` parts, some of them empty.

        Raises:
            ValueError: `num_places` is below 1.
        """
        check_count("num_places", num_places, 1)
        points = parts.split_points(self._count_units(), num_places)
        return [
            self._units(begin, end)
            for begin, end in zip(points[:-1], points[1:], strict=True)
        ]

    def reset_lod(self, lod: Any) -> "LoDTensor":
        """Returns the same rows with other levels, like Paddle's `lod_reset`.

        Args:
            lod: Offset vectors as in `from_offsets`, or a LoDTensor or RaggedTensor
                whose levels to use.

        Raises:
            ValueError, tf.errors.InvalidArgumentError: As `from_offsets`.
        """
        if isinstance(lod, tf.RaggedTensor):
            lod = lod.nested_row_splits
        elif isinstance(lod, LoDTensor):
            lod = lod.lod
        return LoDTensor._checked(self.values, as_one_level_or_more("lod", lod))

    def append_lod(self, offsets: TensorLike) -> "LoDTensor":
        """Returns the same rows with a new innermost level, like Paddle's `lod_append`.

        Rows of the levels above become units of the new level, so there must be as many
        units as rows.

        Args:
            offsets: int64 or int32 `[N + 1]`.

        Raises:
            tf.errors.InvalidArgumentError: The number of offsets is wrong, or they
                do not cover the rows (names level and index).
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
        raise TypeError(f"`ragged` must be a RaggedTensor, got {type(ragged)}.")
    levels = [tf.cast(s, tf.int64) for s in ragged.nested_row_splits]
    return LoDTensor(*validated(ragged.flat_values, levels))


@takes_keras_tensors
def _to_ragged(x: LoDTensor | tf.RaggedTensor) -> tf.RaggedTensor:
    # A KerasTensor may represent either.
    if isinstance(x, tf.RaggedTensor):
        return x
    return tf.RaggedTensor.from_nested_row_splits(
        x.values, x.lod, validate=False
    )


def _refuse_to_be_a_tensor(
    x: LoDTensor, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> NoReturn:
    raise TypeError(
        "A LoDTensor is not a tensor. Use its `values`, `to_ragged()` or "
        "`to_padded()`."
    )


# TensorFlow would stack items of equal lengths.
tf.register_tensor_conversion_function(LoDTensor, _refuse_to_be_a_tensor)
