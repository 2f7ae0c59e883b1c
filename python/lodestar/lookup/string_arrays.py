"""Strings as arrays of their bytes and lengths, for numeric file formats."""

import numpy as np
import tensorflow as tf


def to_arrays(strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the joined bytes (uint8) and the int64 lengths of strings `[N]`."""
    listed = strings.tolist()
    lengths = np.array([len(string) for string in listed], np.int64)
    return np.frombuffer(b"".join(listed), np.uint8), lengths


def from_arrays(joined: np.ndarray, lengths: np.ndarray) -> tf.Tensor:
    """Returns the strings `[N]` from which `to_arrays` made these arrays."""
    data = joined.tobytes()
    ends = np.cumsum(lengths).tolist()
    strings = [data[begin:end] for begin, end in zip([0, *ends], ends)]
    return tf.constant(strings, tf.string, [len(strings)])
