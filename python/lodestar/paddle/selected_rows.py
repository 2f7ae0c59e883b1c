"""Sparse rows of a tall tensor, as in sparse gradients."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import _bases
from lodestar._checks import (
    after,
    as_int64,
    as_vector,
    assert_none,
)
from lodestar._typing import TensorLike
from lodestar.ragged import paddle_stream
from lodestar.ragged.arguments import (
    as_values,
    check_has_values,
    check_rows_like,
)


class SelectedRows(_bases.ExtensionType):
    """Values of some rows of a tensor with `height` rows; other rows are zero.

    This is Paddle's SelectedRows, similar to `tf.IndexedSlices`. Rows may repeat
    and be in any order; the values of repeated rows are summed. Paddle's
    `get_tensor_from_selected_rows` is `values` and `merge_selected_rows` is
    `merge`.

    >>> x = SelectedRows([5, 3, 5], [[1.0], [2.0], [3.0]], 10).merge()
    >>> x.rows.numpy().tolist(), x.values.numpy().tolist()
    ([3, 5], [[2.0], [4.0]])

    Attributes:
        rows: Row numbers, int64 `[n]`.
        values: `[n, ...]` of any dtype; `values[i]` belongs to row `rows[i]`.
        height: Number of rows, an int64 scalar.
    """

    __name__ = "lodestar.SelectedRows"

    rows: tf.Tensor
    values: tf.Tensor
    height: tf.Tensor

    def __init__(
        self, rows: TensorLike, values: TensorLike, height: TensorLike
    ):
        """Creates SelectedRows from int32 or int64 rows and height, and values.

        Raises:
            TypeError: If rows or height are not integers.
            ValueError: If rows are not a vector, or the rank of values or height
                is wrong.
            tf.errors.InvalidArgumentError: If there are not as many rows as
                values, or a row is not below the height. The error names
                index and value.
        """
        self.values = as_values(values)
        self.height = as_int64("height", height, 0)
        rows = as_vector("rows", rows)
        count = tf.shape(self.values)[0]
        checks = [
            assert_none(
                tf.not_equal(tf.size(rows), count),
                lambda _: [
                    *(
                        "`rows` has ",
                        tf.size(rows),
                        " elements, but there are ",
                    ),
                    *(count, " values."),
                ],
            ),
            assert_none(
                self.height < 0,
                lambda _: [
                    "`height` must be at least 0, got ",
                    self.height,
                    ".",
                ],
            ),
            assert_none(
                (rows < 0) | (rows >= self.height),
                lambda i: [
                    *(
                        "`rows[",
                        i,
                        "]` must be in [0, ",
                        self.height,
                        "), got ",
                    ),
                    *(tf.gather(rows, i), "."),
                ],
            ),
        ]
        self.rows = after(checks, rows)

    @classmethod
    def from_indexed_slices(
        cls, slices: tf.IndexedSlices, height: TensorLike | None = None
    ) -> "SelectedRows":
        """Wraps the buffers of IndexedSlices.

        Args:
            slices: IndexedSlices with `dense_shape`, unless `height` is given.
            height: Number of rows; defaults to the first dimension of
                `dense_shape`.

        Raises:
            TypeError: If `slices` is not a `tf.IndexedSlices`.
            ValueError: If there is neither `dense_shape` nor `height`.
        """
        if not isinstance(slices, tf.IndexedSlices):
            raise TypeError(
                f"`slices` must be tf.IndexedSlices, got {type(slices)}."
            )
        if height is None:
            if slices.dense_shape is None:
                raise ValueError(
                    "`slices` has no `dense_shape`. Pass `height`."
                )
            height = slices.dense_shape[0]
        return cls(slices.indices, slices.values, height)

    def to_indexed_slices(self) -> tf.IndexedSlices:
        """Returns IndexedSlices over the same buffers, with `dense_shape`."""
        return tf.IndexedSlices(self.values, self.rows, self.dense_shape)

    @property
    def dense_shape(self) -> tf.Tensor:
        """The shape of the dense tensor, int64: `height` and the row shape."""
        row_shape = tf.shape(self.values, out_type=tf.int64)[1:]
        return tf.concat([[self.height], row_shape], 0)

    @staticmethod
    def concat(tensors: Sequence["SelectedRows"]) -> "SelectedRows":
        """Concatenates rows and values, which represents the sum of all tensors.

        This is Paddle's sum of SelectedRows. Call `merge` to sum repeated rows.

        Raises:
            TypeError: If an element is not SelectedRows, or dtypes differ.
            ValueError: If there is no tensor, or row shapes differ.
            tf.errors.InvalidArgumentError: If heights differ.
        """
        tensors = list(tensors)
        if not tensors:
            raise ValueError("`tensors` must not be empty.")
        for i, x in enumerate(tensors):
            if not isinstance(x, SelectedRows):
                raise TypeError(
                    f"`tensors[{i}]` must be SelectedRows, got {type(x)}."
                )
            check_rows_like(
                f"tensors[{i}]", x.values, "`tensors[0]`", tensors[0].values
            )
        checks = [
            tf.debugging.assert_equal(
                x.height,
                tensors[0].height,
                f"`tensors[{i}]` and `tensors[0]` have different heights",
            )
            for i, x in enumerate(tensors)
        ]
        return SelectedRows(
            tf.concat([x.rows for x in tensors], 0),
            tf.concat([x.values for x in tensors], 0),
            after(checks, tensors[0].height),
        )

    def index(self, keys: TensorLike) -> tf.Tensor:
        """Returns the first index of each key in `rows` as int64, or -1.

        Args:
            keys: int64 or int32 of any shape, which is the shape of the result.

        Raises:
            TypeError: If keys are not integers.
        """
        keys = as_int64("keys", keys)
        order = tf.argsort(self.rows, stable=True)
        ascending = tf.gather(self.rows, order)
        places = tf.searchsorted(
            ascending, tf.reshape(keys, [-1]), out_type=tf.int64
        )
        places = tf.reshape(places, tf.shape(keys))
        # Sentinel for keys beyond all rows; no valid key equals it.
        ascending = tf.concat([ascending, [-1]], 0)
        order = tf.concat([tf.cast(order, tf.int64), [-1]], 0)
        found = (tf.gather(ascending, places) == keys) & (keys >= 0)
        return tf.where(found, tf.gather(order, places), -1)

    def has_key(self, keys: TensorLike) -> tf.Tensor:
        """Returns whether `rows` has each of the keys, of any shape."""
        return self.index(keys) >= 0

    def find(self, keys: TensorLike) -> tf.Tensor:
        """Returns the rows `keys` of the dense tensor without creating it.

        Repeated rows are summed (16-bit floats in float32); missing rows are
        zero. Differentiable in `values`.

        Args:
            keys: int64 or int32 of any shape. The result has this shape followed
                by the row shape.

        Raises:
            TypeError: If keys are not integers.
        """
        merged = self.merge()
        places = merged.index(keys)
        count = tf.shape(merged.values, out_type=tf.int64)[0]
        nothing = tf.zeros(self.dense_shape[1:], self.values.dtype)
        values = tf.concat([merged.values, nothing[tf.newaxis]], 0)
        return tf.gather(values, tf.where(places < 0, count, places))

    def add_to(self, dense: Any) -> Any:
        """Adds the values to the rows of a dense tensor or variable.

        Repeated rows are summed first, 16-bit floats in float32.

        Args:
            dense: A tensor of shape `dense_shape` and the dtype of `values`, or a
                TensorFlow or Keras variable, which is updated in place.

        Returns:
            The sum, differentiable in both; or the variable itself.

        Raises:
            TypeError: If the dtype differs.
            ValueError: If the static shape differs.
            tf.errors.InvalidArgumentError: If the shape differs at run time.
        """
        variable = dense.value if isinstance(dense, keras.Variable) else dense
        in_place = isinstance(variable, tf.Variable)
        if not in_place:
            variable = tf.convert_to_tensor(dense)
        check_rows_like("dense", variable, "the selected rows", self.values)
        merged = self.merge()
        check = tf.debugging.assert_equal(
            tf.shape(variable, tf.int64),
            self.dense_shape,
            "`dense` has another shape than the selected rows",
        )
        rows = after(check, merged.rows)
        if in_place:
            variable.scatter_add(tf.IndexedSlices(merged.values, rows))
            return dense
        return tf.tensor_scatter_nd_add(
            variable, rows[:, tf.newaxis], merged.values
        )

    def to_paddle_stream(self) -> bytes:
        """Serializes to bytes in Paddle's format.

        Raises:
            ValueError: If called in a graph, which has no values.
            TypeError: If Paddle does not support the dtype, such as string.
        """
        check_has_values("to_paddle_stream", self.values)
        return paddle_stream.write_selected_rows(
            self.rows.numpy(), self.values.numpy(), int(self.height)
        )

    @classmethod
    def from_paddle_stream(cls, stream: bytes) -> "SelectedRows":
        """Reads SelectedRows saved by Paddle.

        Raises:
            ValueError: If the bytes are invalid. The error says what and where.
            tf.errors.InvalidArgumentError: If there are not as many rows as
                values, or a row is not below the height. The error names
                index and value.
        """
        return cls(*paddle_stream.read_selected_rows(stream))

    def merge(self) -> "SelectedRows":
        """Returns unique rows in ascending order, with their values summed.

        16-bit floats are summed in float32.
        """
        rows, positions = tf.unique(self.rows, tf.int64)
        order = tf.argsort(rows)
        places = tf.gather(tf.math.invert_permutation(order), positions)
        sums = _sums(self.values, places, tf.size(rows))
        return SelectedRows(tf.gather(rows, order), sums, self.height)

    def to_dense(self) -> tf.Tensor:
        """Returns the dense tensor `[height, ...]`.

        16-bit floats are summed in float32.
        """
        return _sums(self.values, self.rows, self.height)


def _sums(values: tf.Tensor, places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    dtype = values.dtype
    if dtype in (tf.float16, tf.bfloat16):
        values = tf.cast(values, tf.float32)
    return tf.cast(tf.math.unsorted_segment_sum(values, places, size), dtype)
