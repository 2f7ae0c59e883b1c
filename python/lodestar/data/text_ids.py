"""Converts the strings of a column of ids to ids, by the rule of all readers."""

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from lodestar.ops import id_hash
from lodestar.schema import Column
from lodestar.schema.domain import ANY_INTEGER, USUAL_INTEGER


def ids_of_texts(
    column: Column, texts: tf.Tensor
) -> tuple[tf.Tensor, Any, str]:
    """Returns the ids of strings `[N]`, which are not missing values.

    Args:
        column: A column of hashed or hexadecimal strings.
        texts: The strings, stripped.

    Returns:
        int64 ids `[N]`; bool `[N]`, whether a string is valid, or True if all are; and
        the valid strings in words.
    """
    if column.encoding == "hex":
        ids, good = hexadecimal_ids(texts)
        return ids, good, "hexadecimal numbers of 64 bits"
    ids = id_hash.fingerprint(texts, column.hash_as or column.name)
    if column.strings_only:
        return ids, True, "strings"
    full_match = tf.strings.regex_full_match
    good = full_match(texts, USUAL_INTEGER) | ~full_match(texts, ANY_INTEGER)
    return ids, good, "integers in their usual spelling, such as '7'"


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
    padded = tf.strings.join(["0" * 16, tf.strings.lower(text)])
    last = tf.strings.substr(padded, -16, 16)
    codes = tf.io.decode_raw(last, tf.uint8, fixed_length=16)
    codes = tf.cast(codes, tf.int64)
    digits = tf.where(codes < ord("a"), codes - ord("0"), codes - ord("a") + 10)
    shifts = tf.range(60, -1, -4, dtype=tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), 1), valid
