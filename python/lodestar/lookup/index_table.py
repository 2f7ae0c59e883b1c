"""A table and its buckets in one call."""

from typing import Any

import tensorflow as tf

from lodestar._typing import TensorLike
from lodestar.lookup.hasher_spec import FastHashSpec, HasherSpec
from lodestar.lookup.id_table import IdTable
from lodestar.lookup.id_table_with_hash_buckets import IdTableWithHashBuckets


def _with_buckets(
    table: IdTable,
    num_oov_buckets: int,
    hasher_spec: HasherSpec,
    name: str | None,
) -> IdTable | IdTableWithHashBuckets:
    if num_oov_buckets == 0:
        return table
    return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, name)


def index_table_from_tensor(
    vocabulary_list: TensorLike,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = tf.string,
    name: str | None = None,
) -> IdTable | IdTableWithHashBuckets:
    """Numbers a vocabulary; other keys get a bucket or `default_value`.

    Args:
        vocabulary_list: `[N]` keys, all different.
        num_oov_buckets: Buckets after the N ids; 0 for `default_value` instead.
        default_value: The id of a key that is not there, without buckets.
        hasher_spec: The hash of unknown keys.
        dtype: The dtype of keys.
        name: A name.

    Returns:
        An IdTable, or with buckets an IdTableWithHashBuckets.

    Raises:
        ValueError, TypeError, tf.errors.InvalidArgumentError: as these two.
    """
    table = IdTable(
        vocabulary_list, default_value=default_value, key_dtype=dtype, name=name
    )
    return _with_buckets(table, num_oov_buckets, hasher_spec, name)


def index_table_from_file(
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = tf.string,
    name: str | None = None,
    key_column_index: int = tf.lookup.TextFileIndex.WHOLE_LINE,
    value_column_index: int = tf.lookup.TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> IdTable | IdTableWithHashBuckets:
    """Reads a vocabulary from a file, one key a line by default.

    Args:
        vocabulary_file: A path that `tf.io.gfile` reads.
        num_oov_buckets: Buckets after the ids; 0 for `default_value` instead.
        vocab_size: The number of lines to read; all by default.
        default_value: The id of a key that is not there, without buckets.
        hasher_spec: The hash of unknown keys.
        key_dtype: The dtype of keys.
        name: A name.
        key_column_index: The column of keys, or a `tf.lookup.TextFileIndex`.
        value_column_index: The column of ids, or a `tf.lookup.TextFileIndex`.
        delimiter: One character, between columns.

    Returns:
        An IdTable, or with buckets an IdTableWithHashBuckets.

    Raises:
        ValueError: an option out of range.
        tf.errors.NotFoundError: no such file (names it).
        tf.errors.InvalidArgumentError: a malformed line (names file and line),
            as `IdTable.import_file` says.
    """
    table = IdTable(
        [], default_value=default_value, key_dtype=key_dtype, name=name
    )
    with tf.init_scope():
        table.import_file(
            vocabulary_file,
            key_column=key_column_index,
            value_column=value_column_index,
            delimiter=delimiter,
            vocab_size=vocab_size,
        )
    return _with_buckets(table, num_oov_buckets, hasher_spec, name)
