"""SelectedRows: some rows of a tall tensor, as sparse gradients are."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import after, as_int64, as_vector
from lodestar._library import gen_ops
from lodestar._typing import TensorLike
from lodestar.ragged import paddle_stream
from lodestar.ragged.arguments import (
    as_values,
    check_has_values,
    check_rows_like,
)


class SelectedRows(tf.experimental.ExtensionType):
    """Values of some rows of a tensor of `height` rows, all others being zero.

    Paddle's type of that name, and what TensorFlow calls `tf.IndexedSlices`:
    rows may repeat and are in any order; a row that is there more than once
    means the sum of its values. Paddle's `get_tensor_from_selected_rows` is
    `values`, its `merge_selected_rows` is `merge`.

    >>> x = SelectedRows([5, 3, 5], [[1.0], [2.0], [3.0]], 10).merge()
    >>> x.rows.numpy().tolist(), x.values.numpy().tolist()
    ([3, 5], [[2.0], [4.0]])

    Attributes:
        rows: int64 `[n]`.
        values: `[n, ...]`, any dtype; `values[i]` is of row `rows[i]`.
        height: An int64 scalar.
    """

    __name__ = "lodestar.SelectedRows"

    rows: tf.Tensor
    values: tf.Tensor
    height: tf.Tensor

    def __init__(
        self, rows: TensorLike, values: TensorLike, height: TensorLike
    ):
        """Takes rows and height, int64 or int32, and values over them.

        Raises:
            TypeError: rows or a height that are no integers.
            ValueError: rows that are no vector, values or a height of another
                rank.
            tf.errors.InvalidArgumentError: another number of rows than values,
                a row outside of the height (names index and value).
        """
        self.values = as_values(values)
        self.height = as_int64("height", height, 0)
        self.rows = gen_ops.lodestar_selected_rows_validate(
            as_vector("rows", rows),
            tf.shape(self.values, out_type=tf.int64)[0],
            self.height,
        )

    @classmethod
    def from_indexed_slices(
        cls, slices: tf.IndexedSlices, height: TensorLike | None = None
    ) -> "SelectedRows":
        """Takes the buffers of IndexedSlices.

        Args:
            slices: With `dense_shape`, or given `height`.
            height: How many rows there are; None takes the first dimension of
                `dense_shape`.

        Raises:
            TypeError: no IndexedSlices.
            ValueError: neither `dense_shape` nor `height`.
        """
        if not isinstance(slices, tf.IndexedSlices):
            raise TypeError(
                f"`slices` must be IndexedSlices, found {type(slices)}"
            )
        if height is None:
            if slices.dense_shape is None:
                raise ValueError(
                    "`slices` has no `dense_shape`; give the `height`"
                )
            height = slices.dense_shape[0]
        return cls(slices.indices, slices.values, height)

    def to_indexed_slices(self) -> tf.IndexedSlices:
        """Returns IndexedSlices over the same buffers, with `dense_shape`."""
        return tf.IndexedSlices(self.values, self.rows, self.dense_shape)

    @property
    def dense_shape(self) -> tf.Tensor:
        """The complete shape: int64, `height` and the shape of a row."""
        row_shape = tf.shape(self.values, out_type=tf.int64)[1:]
        return tf.concat([[self.height], row_shape], 0)

    @staticmethod
    def concat(tensors: Sequence["SelectedRows"]) -> "SelectedRows":
        """Appends rows and values; it means the sum of all.

        Paddle's sum of SelectedRows. `merge` adds up what is there twice.

        Raises:
            TypeError: one is no SelectedRows; different dtypes.
            ValueError: no tensor, rows of different shapes.
            tf.errors.InvalidArgumentError: different heights.
        """
        tensors = list(tensors)
        if not tensors:
            raise ValueError("`tensors` is empty, wanted one or more")
        for i, x in enumerate(tensors):
            if not isinstance(x, SelectedRows):
                raise TypeError(
                    f"`tensors[{i}]` must be SelectedRows, found {type(x)}"
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
        """Returns where each key first is in `rows`: int64, -1 where it is not.

        Args:
            keys: int64 or int32, of any shape, which the result has.

        Raises:
            TypeError: keys that are no integers.
        """
        keys = as_int64("keys", keys)
        order = tf.argsort(self.rows, stable=True)
        ascending = tf.gather(self.rows, order)
        places = tf.searchsorted(
            ascending, tf.reshape(keys, [-1]), out_type=tf.int64
        )
        places = tf.reshape(places, tf.shape(keys))
        # One more, for a key beyond all rows, which no key is.
        ascending = tf.concat([ascending, [-1]], 0)
        order = tf.concat([tf.cast(order, tf.int64), [-1]], 0)
        found = (tf.gather(ascending, places) == keys) & (keys >= 0)
        return tf.where(found, tf.gather(order, places), -1)

    def has_key(self, keys: TensorLike) -> tf.Tensor:
        """Returns whether `rows` have each of the keys, of any shape."""
        return self.index(keys) >= 0

    def find(self, keys: TensorLike) -> tf.Tensor:
        """Returns the rows `keys` of the dense tensor, which is not made.

        The sum of what is there more than once, zero where nothing is. 16-bit
        floats are summed in float32. Differentiable in `values`.

        Args:
            keys: int64 or int32, of any shape, which the result has before the
                shape of a row.

        Raises:
            TypeError: keys that are no integers.
        """
        merged = self.merge()
        places = merged.index(keys)
        count = tf.shape(merged.values, out_type=tf.int64)[0]
        nothing = tf.zeros(self.dense_shape[1:], self.values.dtype)
        values = tf.concat([merged.values, nothing[tf.newaxis]], 0)
        return tf.gather(values, tf.where(places < 0, count, places))

    def add_to(self, dense: Any) -> Any:
        """Adds the values to the rows of a dense tensor or variable.

        A row that is there more than once is added as often; 16-bit floats are
        summed in float32 first.

        Args:
            dense: `dense_shape`, of the dtype of `values`: a Tensor, or a
                variable of TensorFlow or Keras, which is changed in place.

        Returns:
            The sum, differentiable in both; or the variable itself.

        Raises:
            TypeError: another dtype.
            ValueError: another static shape.
            tf.errors.InvalidArgumentError: another shape at run time.
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
        """Returns the bytes in which Paddle saves SelectedRows.

        Raises:
            ValueError: in a graph, which has no values.
            TypeError: a dtype that Paddle does not have, such as string.
        """
        check_has_values("to_paddle_stream", self.values)
        return paddle_stream.write_selected_rows(
            self.rows.numpy(), self.values.numpy(), int(self.height)
        )

    @classmethod
    def from_paddle_stream(cls, stream: bytes) -> "SelectedRows":
        """Reads SelectedRows that Paddle saved.

        Raises:
            ValueError: bytes that are none, or more (says what and where).
            tf.errors.InvalidArgumentError: another number of rows than values,
                a row outside of the height (names index and value).
        """
        return cls(*paddle_stream.read_selected_rows(stream))

    def merge(self) -> "SelectedRows":
        """Returns each row once, in ascending order, with the sum of its values.

        16-bit floats are summed in float32.
        """
        rows, positions = tf.unique(self.rows, tf.int64)
        order = tf.argsort(rows)
        places = tf.gather(tf.math.invert_permutation(order), positions)
        sums = _sums(self.values, places, tf.size(rows))
        return SelectedRows(tf.gather(rows, order), sums, self.height)

    def to_dense(self) -> tf.Tensor:
        """Returns `[height, ...]`, zero where no row is.

        16-bit floats are summed in float32.
        """
        return _sums(self.values, self.rows, self.height)


def _sums(values: tf.Tensor, places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    dtype = values.dtype
    if dtype in (tf.float16, tf.bfloat16):
        values = tf.cast(values, tf.float32)
    return tf.cast(tf.math.unsorted_segment_sum(values, places, size), dtype)
