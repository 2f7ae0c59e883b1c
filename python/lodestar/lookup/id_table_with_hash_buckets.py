"""IdTableWithHashBuckets: ids for known keys, buckets for all others."""

from typing import Any

import numpy.typing as npt
import tensorflow as tf

from lodestar._checks import check_count
from lodestar._typing import AnyTensor
from lodestar.lookup.hasher_spec import HasherSpec, hasher_attributes
from lodestar.lookup.id_table import (
    IdTable,
    as_keys,
    name_scope,
    refuse_keys,
)
from lodestar.ops import id_table_ops
from lodestar.ops.flat_values import map_flat


class IdTableWithHashBuckets(tf.Module):
    """Known keys get their ids, other keys one of `num_oov_buckets` after them.

    One op probes the table and hashes the misses only. The results are those of
    `tf.lookup.StaticVocabularyTable`, bit for bit: a missing key gets
    `table.size() + hash(key) % num_oov_buckets`, an integer key hashing as its
    decimal text. (Ids of unknown keys come last here, as in TensorFlow; in
    `lodestar.layers.IdLookup` they come first, as in Keras.) A key whose id
    happens to be the table's default value is found, not hashed.

    >>> names = IdTable(["emerson", "lake", "palmer"])
    >>> table = IdTableWithHashBuckets(names, 10)
    >>> bool(table.lookup(tf.constant(["king"])) >= 3)
    True

    Args:
        table: An immutable IdTable, or None for buckets alone.
        num_oov_buckets: 0 gives the table's default value to unknown keys.
        hasher_spec: The hash of unknown keys: a `HasherSpec`, or the name of a
            hash that needs no key, `"fasthash"` or `"legacy"`.
        name: A name.
        key_dtype: The dtype of the keys that are looked up, by default that of
            `table`, or string. With integer keys in the table, any integer
            type: a key is cast to that of the table first.

    Raises:
        TypeError: `table` is another thing; a `key_dtype` that is not of the
            table's kind; a `hasher_spec` that is none.
        ValueError: a mutable table (its buckets would move as it grows); a
            negative number of buckets, or none without a table; a strong hash
            without a key of two words.
    """

    def __init__(
        self,
        table: IdTable | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec | str = "fasthash",
        name: str | None = None,
        key_dtype: Any = None,
    ):
        super().__init__(name=name or "id_table_with_hash_buckets")
        check_count("num_oov_buckets", num_oov_buckets, 0)
        if table is None:
            if num_oov_buckets == 0:
                raise ValueError("`num_oov_buckets` is 0 and there is no table")
            key_dtype = tf.as_dtype(key_dtype or tf.string)
            # TensorFlow hashes a uint64 as it is written where there is no
            # table, but as the int64 of its bits where there is one.
            self._as_text = key_dtype == tf.uint64
            table = IdTable(
                [], key_dtype=tf.string if self._as_text else key_dtype
            )
        elif not isinstance(table, IdTable):
            raise TypeError(
                f"`table` must be an IdTable or None, found {type(table)}"
            )
        elif table.mutable:
            raise ValueError(
                "`table` is mutable: bucket numbers would move as it grows"
            )
        else:
            self._as_text = False
            key_dtype = tf.as_dtype(key_dtype or table.key_dtype)
            if key_dtype != table.key_dtype and not (
                key_dtype in id_table_ops.KEY_DTYPES
                and key_dtype.is_integer
                and table.key_dtype.is_integer
            ):
                raise TypeError(
                    f"`key_dtype` is {key_dtype.name}, but the table's keys "
                    f"are {table.key_dtype.name}"
                )
        self._key_dtype = key_dtype
        self._table = table
        self._num_oov_buckets = int(num_oov_buckets)
        self._hasher, self._hasher_key = hasher_attributes(hasher_spec)

    @property
    def table(self) -> IdTable:
        """The table of known keys."""
        return self._table

    @property
    def num_oov_buckets(self) -> int:
        """The number of buckets."""
        return self._num_oov_buckets

    @property
    def key_dtype(self) -> tf.DType:
        """The dtype of keys."""
        return self._key_dtype

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle of the table of known keys."""
        return self._table.resource_handle

    def lookup(
        self, keys: AnyTensor | npt.ArrayLike, name: str | None = None
    ) -> AnyTensor:
        """Returns the ids of keys.

        Args:
            keys: Dense of any rank, ragged of any depth, or sparse.
            name: Of the name scope around the ops.

        Returns:
            int64 ids of the same kind and shape.

        Raises:
            TypeError: keys of another kind.
            ValueError: integers of Python or NumPy beyond the key dtype.
        """
        with name_scope(name):
            if self._key_dtype != self._table.key_dtype:
                keys = self._cast(keys)
            if self._num_oov_buckets == 0:
                return self._table.lookup(keys)
            return id_table_ops.find_or_hash(
                self._table.resource_handle,
                self._table.convert_keys(keys),
                num_oov_buckets=self._num_oov_buckets,
                hasher=self._hasher,
                hasher_key=self._hasher_key,
            )

    def _cast(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns keys of `key_dtype` as those of the table."""
        keys = as_keys(keys, self._key_dtype)
        if keys.dtype != self._key_dtype:
            keys = refuse_keys(
                keys,
                self._key_dtype,
                f"`keys` have dtype {keys.dtype.name}, wanted "
                f"{self._key_dtype.name}.",
            )
        if self._as_text:
            return map_flat(tf.strings.as_string, keys)
        return tf.cast(keys, self._table.key_dtype)

    def __getitem__(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def size(self) -> tf.Tensor:
        """Returns the number of keys and buckets, an int64 scalar."""
        return self._table.size() + self._num_oov_buckets
