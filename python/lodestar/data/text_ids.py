"""Converts the strings of a column of ids to ids, by the rule of all readers."""

from typing import Any

import tensorflow as tf

from lodestar.data.schema import Column
from lodestar.data.schema.domain import ANY_INTEGER, USUAL_INTEGER
from lodestar.string_ids import hash_ids, hexadecimal_ids


def ids_of_texts(
    column: Column, texts: tf.Tensor
) -> tuple[tf.Tensor, Any, str]:
    """Returns the ids of strings `[N]`, which are not missing values.

    Args:
        column: A column with the encoding `"hash"` or `"hex"`.
        texts: The strings, without leading or trailing whitespace.

    Returns:
        int64 ids `[N]`; bool `[N]`, whether a string is valid, or True if all are; and
        the valid strings in words.
    """
    if column.encoding == "hex":
        ids, good = hexadecimal_ids(texts)
        return ids, good, "hexadecimal numbers of 64 bits"
    ids = hash_ids(texts, column=column.hash_as or column.name)
    if column.strings_only:
        return ids, True, "strings"
    full_match = tf.strings.regex_full_match
    good = full_match(texts, USUAL_INTEGER) | ~full_match(texts, ANY_INTEGER)
    return ids, good, "integers in their usual spelling, such as '7'"
