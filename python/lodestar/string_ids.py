"""Ids of strings, as in layers and the data tool."""

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from lodestar._checks import check_text, check_unmasked
from lodestar._typing import AnyTensor, AnyTensorLike
from lodestar.embedding import ids as ids_lib
from lodestar.ops import id_hash


def hash_ids(
    values: AnyTensorLike, *, column: str | None = None, salt: str | None = None
) -> AnyTensor:
    r"""Returns the ids of strings: 64-bit hashes, without a vocabulary.

    The id is FarmHash's Fingerprint64 of the bytes of a value, or of `column +
    "\0" + value`, as int64. With `salt`, it is mix64(id xor hash(salt)), the id
    in the table of a layer or feature with that salt. It is equal in every
    release, on every machine, and in graphs.

    >>> lodestar.hash_ids(["ada"]).numpy()
    array([-5302328041424411012])

    Args:
        values: Strings: dense of any shape, ragged or sparse. Python strings
            are encoded as UTF-8.
        column: Separates equal values of different columns, as the data tool,
            DynamicEmbedding and Feature do.
        salt: The `salt` of DynamicEmbedding and Feature.

    Returns:
        int64, of the kind and shape of `values`.

    Raises:
        ValueError: `values`, `column` or `salt` are not strings.
    """
    check_text("column", column)
    check_text("salt", salt)
    check_unmasked("values", values)
    # Keras traces subclassed models with floats, which `to_int64` accepts.
    found: Any = values
    traced = tf.is_symbolic_tensor(found) and found.dtype.is_floating
    if not traced and not isinstance(found, (tf.RaggedTensor, tf.SparseTensor)):
        try:
            found = tf.convert_to_tensor(found, tf.string)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`values`, a {type(values).__name__}, must be strings: {error}"
            ) from error
    if found.dtype != tf.string and not traced:
        raise ValueError(
            f"`values` must be strings, got dtype {found.dtype.name}. Integers "
            "are already ids."
        )
    ids = ids_lib.to_int64(found, strings=True, column=column)
    return id_hash.salted(ids, salt)


def is_any_of(values: tf.Tensor, strings: Collection[str]) -> tf.Tensor:
    """Whether each string `[N]` is one of `strings`, bool `[N]`."""
    return tf.reduce_any(
        values[:, None] == tf.constant(list(strings), tf.string), 1
    )


def hexadecimal_ids(found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses hexadecimal numbers of at most 64 bits.

    Args:
        found: Strings `[N]`, with or without `0x`.

    Returns:
        int64 `[N]`, the ids with these bits, and bool `[N]`, whether a string is
        such a number.
    """
    valid = tf.strings.regex_full_match(found, r"(0[xX])?0*[0-9a-fA-F]{1,16}")
    text = tf.strings.regex_replace(found, r"^0[xX]", "")
    codes = last_codes(tf.strings.lower(text), 16)
    digits = tf.where(codes < ord("a"), codes - ord("0"), codes - ord("a") + 10)
    shifts = tf.range(60, -1, -4, dtype=tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), 1), valid


def last_codes(text: tf.Tensor, width: int) -> tf.Tensor:
    """Returns the last bytes of strings, padded with "0": int64 `[N, width]`."""
    padded = tf.strings.join(["0" * width, text])
    last = tf.strings.substr(padded, -width, width)
    return tf.cast(
        tf.io.decode_raw(last, tf.uint8, fixed_length=width), tf.int64
    )
