"""Texts as arrays of numbers, which any file holds: their bytes and lengths."""

import numpy as np
import tensorflow as tf


def to_arrays(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns all bytes, uint8, and the int64 lengths of `texts` `[N]`."""
    listed = texts.tolist()
    lengths = np.array([len(text) for text in listed], np.int64)
    return np.frombuffer(b"".join(listed), np.uint8), lengths


def from_arrays(joined: np.ndarray, lengths: np.ndarray) -> tf.Tensor:
    """Returns the texts `[N]` that `to_arrays` gave these arrays for."""
    data = joined.tobytes()
    ends = np.cumsum(lengths).tolist()
    texts = [data[begin:end] for begin, end in zip([0, *ends], ends)]
    return tf.constant(texts, tf.string, [len(texts)])
