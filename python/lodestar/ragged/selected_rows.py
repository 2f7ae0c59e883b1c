"""SelectedRows: some rows of a tall tensor, as sparse gradients are."""

import tensorflow as tf

from lodestar.ops import selected_rows_ops
from lodestar.ragged.arguments import as_int64, as_values, as_vector


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

    def __init__(self, rows, values, height):
        """Takes rows and height, int64 or int32, and values over them.

        Raises:
          TypeError: rows or a height that are no integers.
          ValueError: rows that are no vector, values or a height of another
            rank.
          tf.errors.InvalidArgumentError: another number of rows than values, a
            row outside of the height (names index and value).
        """
        self.values = as_values(values)
        self.height = as_int64("height", height, 0)
        self.rows = selected_rows_ops.selected_rows_validate(
            as_vector("rows", rows),
            tf.shape(self.values, out_type=tf.int64)[0],
            self.height,
        )

    @classmethod
    def from_indexed_slices(
        cls, slices: tf.IndexedSlices, height=None
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
        return tf.IndexedSlices(self.values, self.rows, self._dense_shape())

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

    def _dense_shape(self):
        return tf.concat(
            [[self.height], tf.shape(self.values, out_type=tf.int64)[1:]], 0
        )


def _sums(values: tf.Tensor, places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    dtype = values.dtype
    if dtype in (tf.float16, tf.bfloat16):
        values = tf.cast(values, tf.float32)
    return tf.cast(tf.math.unsorted_segment_sum(values, places, size), dtype)
