"""IdTableWithHashBuckets: ids for known keys, buckets for all others."""

import tensorflow as tf

from lodestar.lookup.hasher_spec import (
    FastHashSpec,
    HasherSpec,
    hasher_attributes,
)
from lodestar.lookup.id_table import IdTable
from lodestar.ops import id_table_ops


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
      hasher_spec: `FastHashSpec`, `LegacyHashSpec` or `StrongHashSpec(key)`.
      name: A name.
      key_dtype: The dtype of keys where `table` is None; by default string.

    Raises:
      TypeError: `table` is another thing; a `key_dtype` that is not the table's.
      ValueError: a mutable table (its buckets would move as it grows); a
        negative number of buckets, or none without a table; a hash that is none
        of ours.
    """

    def __init__(
        self,
        table: IdTable | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: str | None = None,
        key_dtype=None,
    ):
        super().__init__(name=name or "id_table_with_hash_buckets")
        if num_oov_buckets < 0:
            raise ValueError(
                f"`num_oov_buckets` is {num_oov_buckets}, wanted 0 or more"
            )
        if table is None:
            if num_oov_buckets == 0:
                raise ValueError("`num_oov_buckets` is 0 and there is no table")
            table = IdTable([], key_dtype=key_dtype or tf.string)
        elif not isinstance(table, IdTable):
            raise TypeError(
                f"`table` must be an IdTable or None, found {type(table)}"
            )
        elif table.mutable:
            raise ValueError(
                "`table` is mutable: bucket numbers would move as it grows"
            )
        elif key_dtype is not None and tf.as_dtype(key_dtype) != table.key_dtype:
            raise TypeError(
                f"`key_dtype` is {tf.as_dtype(key_dtype).name}, but the table's "
                f"keys are {table.key_dtype.name}"
            )
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
        return self._table.key_dtype

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle of the table of known keys."""
        return self._table.resource_handle

    def lookup(self, keys):
        """Returns the ids of keys.

        Args:
          keys: Dense of any rank, ragged of any depth, or sparse.

        Returns:
          int64 ids of the same kind and shape.
        """
        if self._num_oov_buckets == 0:
            return self._table.lookup(keys)
        return id_table_ops.find_or_hash(
            self._table.resource_handle,
            self._table.convert_keys(keys),
            num_oov_buckets=self._num_oov_buckets,
            hasher=self._hasher,
            hasher_key=self._hasher_key,
        )

    def __getitem__(self, keys):
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def size(self) -> tf.Tensor:
        """Returns the number of keys and buckets, an int64 scalar."""
        return self._table.size() + self._num_oov_buckets
