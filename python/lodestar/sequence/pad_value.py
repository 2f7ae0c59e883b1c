"""What an op puts where there are no rows, from whatever the caller gave."""

import numbers

import numpy as np
import tensorflow as tf


def as_pad_value(pad_value, dtype: tf.DType) -> tf.Tensor:
    """Returns `pad_value` as a tensor of `dtype`, which is the one of `x`.

    Raises:
      TypeError: a tensor of another dtype.
      ValueError: a number that the integer `dtype` does not have.
    """
    if tf.is_tensor(pad_value):
        if pad_value.dtype != dtype:
            raise TypeError(
                f"`pad_value` has dtype {pad_value.dtype.name}, but `x` has "
                f"{dtype.name}"
            )
        return tf.convert_to_tensor(pad_value)
    if dtype.is_integer:
        # As Python's numbers, which neither round nor wrap around.
        pad_value = np.asarray(pad_value, dtype=object)
        for number in pad_value.flat:
            if (
                not isinstance(number, numbers.Integral)
                and not float(number).is_integer()
            ):
                raise ValueError(
                    f"`pad_value` is {number}, wanted an integer for `x` of "
                    f"{dtype.name}"
                )
            if not dtype.min <= number <= dtype.max:
                raise ValueError(
                    f"`pad_value` is {number}, beyond {dtype.name}"
                )
        pad_value = pad_value.astype(dtype.as_numpy_dtype)
    return tf.convert_to_tensor(pad_value, dtype)
