"""The op of selected rows."""

import tensorflow as tf

from lodestar._library import gen_ops


def selected_rows_validate(
    rows: tf.Tensor, num_values: tf.Tensor, height: tf.Tensor
) -> tf.Tensor:
    """Returns the int64 rows `[n]` themselves, checked by the op at run time."""
    return gen_ops.lodestar_selected_rows_validate(
        rows=rows, num_values=num_values, height=height
    )
