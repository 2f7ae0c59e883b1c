"""IdTableWithHashBuckets: an IdTable whose missing keys are hashed to buckets."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import (
    check_choice,
    check_count,
    check_name,
    is_integer,
)
from lodestar._typing import AnyTensor
from lodestar.lookup.id_table import IdTable, describe_keys
from lodestar.ops import id_table_ops

Hasher: TypeAlias = Literal["fast", "strong", "legacy"]
HasherKey: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]


def _words(hasher: Hasher, key: HasherKey | None) -> list[int]:
    """Returns the op's `hasher_key`: `key` as signed 64-bit words."""
    check_choice("hasher", hasher, get_args(Hasher))
    if hasher != "strong":
        if key is not None:
            raise ValueError(
                f"`hasher_key` must be None for `hasher`={hasher!r}, got "
                f"{key!r}. Only 'strong' has a key."
            )
        return []
    if (
        not isinstance(key, Sequence | np.ndarray)
        or len(key) != 2
        or not all(is_integer(w) and -(2**63) <= w < 2**64 for w in key)
    ):
        raise ValueError(
            "`hasher_key` must be a pair of 64-bit integers for "
            f"`hasher`='strong', got {key!r}."
        )
    return [int(word) - (2**64 if word >= 2**63 else 0) for word in key]


class IdTableWithHashBuckets(tf.Module):
    """An IdTable whose missing keys are hashed to buckets.

    >>> names = IdTable(["emerson", "lake", "palmer"])
    >>> table = IdTableWithHashBuckets(names, num_oov_buckets=10)
    >>> table.lookup(tf.constant(["lake", "king"])).numpy().tolist()
    [1, 11]

    The ids of out-of-vocabulary (OOV) keys come last, as in TensorFlow: a key
    that is not in `table` has the id `N + hash(key) % num_oov_buckets`, where `N`
    is the number of keys. One op probes the table and hashes only the misses.
    (`lodestar.layers.IdLookup` numbers OOV keys first, as Keras does, unless
    `oov_ids="last"`.)

    The ids equal those of `tf.lookup.StaticVocabularyTable`, bit for bit. Only a
    key whose id is the table's `default_value` differs: it is found here, but
    hashed there. An integer is hashed as its decimal string, and a uint64 as the
    int64 of the same bits.

    Checkpoints and SavedModels hold the content of `table`. The handle works with
    `tf.raw_ops.LookupTable*`, which do not hash.

    Args:
        table: An IdTable that is not mutable, because bucket ids would move as it
            grows. None hashes all keys.
        num_oov_buckets: Number of buckets. 0 gives missing keys the
            `default_value` of `table`, and is not allowed without a table.
        hasher: "fast" is `tf.strings.to_hash_bucket_fast` (FarmHash). "strong" is
            `tf.strings.to_hash_bucket_strong` (SipHash): without `hasher_key`
            nobody can choose keys that share a bucket. "legacy" is
            `tf.strings.to_hash_bucket` (MurmurHash), for ids of old models.
        hasher_key: A pair of 64-bit integers, the secret key of "strong".
        key_dtype: String or an integer dtype. Defaults to the dtype of the keys
            of `table`, and is required if `table` is None.
        name: A name, which need not be unique. Defaults to `table.name`.

    Raises:
        TypeError: `table` is neither an IdTable nor None.
        ValueError: `table` is mutable, `num_oov_buckets` is out of range,
            `hasher_key` does not match `hasher`, or `key_dtype` is missing or
            differs from `table.key_dtype`.
    """

    @explained()
    def __init__(
        self,
        table: IdTable | None,
        num_oov_buckets: int,
        *,
        hasher: Hasher = "fast",
        hasher_key: HasherKey | None = None,
        key_dtype: Any = None,
        name: str | None = None,
    ):
        super().__init__()
        self._num_oov_buckets = check_count(
            "num_oov_buckets", num_oov_buckets, int(table is None)
        )
        self._hasher = hasher
        # A partial function, because TensorFlow would track a list.
        self._find_or_hash = functools.partial(
            id_table_ops.find_or_hash,
            num_oov_buckets=self._num_oov_buckets,
            hasher=hasher,
            hasher_key=_words(hasher, hasher_key),
        )
        if table is None:
            if key_dtype is None:
                raise ValueError(
                    "`key_dtype` must be given if `table` is None, such as "
                    "tf.string or tf.int64."
                )
            table = IdTable([], key_dtype=key_dtype, name=name)
        elif not isinstance(table, IdTable):
            raise TypeError(
                "`table` must be a lodestar.lookup.IdTable or None, got "
                f"{type(table).__name__}. Make an IdTable of the keys first: "
                "IdTable(keys)."
            )
        elif table.mutable and num_oov_buckets:
            raise ValueError(
                f"`num_oov_buckets` must be 0 for the mutable table {table!r}, "
                f"got {num_oov_buckets}: bucket ids would move as it grows."
            )
        elif key_dtype is not None and table.key_dtype != key_dtype:
            raise ValueError(
                f"`key_dtype` must be {table.key_dtype.name}, as in {table!r}, "
                f"got {tf.as_dtype(key_dtype).name}."
            )
        self._table = table
        self._own_name = table.name if name is None else check_name(name)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._own_name!r} "
            f"{describe_keys(self._table)} "
            f"num_oov_buckets={self._num_oov_buckets} hasher={self._hasher!r}>"
        )

    @property
    def name(self) -> str:
        """The name."""
        return self._own_name

    @property
    def table(self) -> IdTable:
        """The table, which is empty if none was given."""
        return self._table

    @property
    def num_oov_buckets(self) -> int:
        """Number of buckets."""
        return self._num_oov_buckets

    @property
    def hasher(self) -> Hasher:
        """The hash of missing keys."""
        return self._hasher

    @property
    def key_dtype(self) -> tf.DType:
        """The dtype of keys."""
        return self._table.key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """int64."""
        return tf.int64

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle of `table`."""
        return self._table.resource_handle

    def lookup(
        self, keys: AnyTensor | npt.ArrayLike, name: str | None = None
    ) -> AnyTensor:
        """Returns the ids of keys.

        Args:
            keys: A dense tensor of any rank, a RaggedTensor or a SparseTensor.
            name: Name scope of the ops.

        Returns:
            int64 ids of the same kind and shape as `keys`.

        Raises:
            TypeError: `keys` are not of the table's key dtype.
        """
        if self._num_oov_buckets == 0:
            return self._table.lookup(keys, name=name)
        scope = (
            contextlib.nullcontext() if name is None else tf.name_scope(name)
        )
        with scope:
            return self._find_or_hash(
                self._table.resource_handle, self._table.convert_keys(keys)
            )

    def __getitem__(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def size(self) -> tf.Tensor:
        """Returns the number of keys and buckets, an int64 scalar."""
        return self._table.size() + self._num_oov_buckets

    def memory_used(self) -> tf.Tensor:
        """Returns the bytes of the keys and ids, an int64 scalar."""
        return self._table.memory_used()


@explained()
def index_table_from_tensor(
    vocabulary_list: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    *,
    hasher: Hasher = "fast",
    hasher_key: HasherKey | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> IdTable | IdTableWithHashBuckets:
    """Creates a table that maps each key of a vocabulary to its position.

    >>> table = index_table_from_tensor(["emerson", "lake"], num_oov_buckets=1)
    >>> table.lookup(tf.constant(["lake", "king"])).numpy().tolist()
    [1, 2]

    Args:
        vocabulary_list: Unique strings or integers of shape `[N]`.
        num_oov_buckets: Number of hash buckets for missing keys.
        default_value: The id of missing keys if there are no buckets.
        hasher: The hash of missing keys; see IdTableWithHashBuckets.
        hasher_key: The key of `hasher="strong"`.
        dtype: Dtype of keys. Defaults to the dtype of `vocabulary_list`.
        name: A name, which need not be unique.

    Returns:
        An IdTableWithHashBuckets, or an IdTable if `num_oov_buckets` is 0.

    Raises:
        TypeError: `vocabulary_list` are neither strings nor integers.
        ValueError: An argument is out of range; see both classes.
        tf.errors.InvalidArgumentError: A key is repeated (names the key).
    """
    table = IdTable(
        vocabulary_list,
        default_value=default_value,
        key_dtype=dtype,
        name=name,
    )
    buckets = IdTableWithHashBuckets(
        table, num_oov_buckets, hasher=hasher, hasher_key=hasher_key
    )
    return buckets if num_oov_buckets else table
