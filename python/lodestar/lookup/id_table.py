"""IdTable: keys to int64 ids, and buckets for keys that it does not have."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from lodestar._checks import check_count, check_name
from lodestar._library import gen_ops
from lodestar._resource import (
    SavedResource,
    gpu_in_scope,
    scalar_if_empty,
    unless_scalar,
)
from lodestar._typing import AnyTensor, TensorLike
from lodestar.lookup.hasher_spec import HasherSpec, hasher_attributes
from lodestar.lookup.keys import as_keys, contents, int64_values, refuse_keys
from lodestar.ops import id_table_ops
from lodestar.ops.flat_values import map_flat


def _name_scope(name: str | None) -> contextlib.AbstractContextManager[None]:
    """The scope of a lookup's `name`; None: that which is there."""
    return contextlib.nullcontext() if name is None else tf.name_scope(name)


class IdTable(SavedResource):
    """A table of string or integer keys to int64 ids.

    >>> table = IdTable(["emerson", "lake", "palmer"])
    >>> table.lookup(tf.constant(["lake", "nobody"])).numpy().tolist()
    [1, -1]

    Ids of unknown keys come last in `IdTableWithHashBuckets` over it, as in
    TensorFlow; in `lodestar.layers.IdLookup` they come first, as in Keras.

    The handle is that of a TensorFlow lookup table, so `tf.raw_ops.LookupTable*`
    take it. The content is saved with checkpoints and SavedModels. A mutable
    table may be read and written by any number of threads at once. One of
    integers that is made within `with tf.device("/GPU:0"):` is looked up on
    that GPU, which has a copy of it; docs/cuda.md.

    Args:
        keys: `[N]` string or integers; or a `tf.lookup` initializer with int64
            values.
        values: `[N]` integers, or None to number the keys 0, 1, 2, ...
        default_value: The id of a key that is not there.
        key_dtype: The dtype of keys, string or any integer type; by default
            that of `keys`. A uint64 key is taken for the int64 of its bits, as
            in TensorFlow.
        mutable: Whether `insert` and `remove` are allowed.
        name: A name, which need not be unique.

    Raises:
        TypeError: keys of another dtype; values that are no integers, or of an
            initializer that are not int64.
        ValueError: keys that are no vector, or beyond `key_dtype`; values of
            another number.
        tf.errors.InvalidArgumentError: a key with two values (names the key).
        tf.errors.ResourceExhaustedError: no memory.
    """

    def __init__(
        self,
        keys: Any,
        values: TensorLike | None = None,
        *,
        default_value: int = -1,
        key_dtype: Any = None,
        mutable: bool = False,
        name: str | None = None,
    ):
        self._name = check_name(name or "id_table")
        device = gpu_in_scope()
        with tf.init_scope(), tf.device("CPU"):
            keys, values = contents(keys, values, key_dtype)
        super().__init__(self._name, device if keys.dtype.is_integer else None)
        self._default_value = int(default_value)
        self._mutable = bool(mutable)
        with tf.init_scope():
            self._key_dtype = keys.dtype
            self.load(keys, values)
        self.keep_for_graph()

    @classmethod
    def from_tensor(
        cls,
        keys: TensorLike,
        num_oov_buckets: int = 0,
        *,
        key_dtype: Any = None,
        default_value: int = -1,
        hasher_spec: HasherSpec | str = "fasthash",
        name: str | None = None,
    ) -> "IdTable | IdTableWithHashBuckets":
        """Numbers a vocabulary, with hash buckets for other keys.

        >>> table = IdTable.from_tensor(["emerson", "lake"], num_oov_buckets=10)
        >>> bool(table.lookup(tf.constant(["king"])) >= 2)
        True

        Args:
            keys: `[N]` string or integers, all different.
            num_oov_buckets: The number of buckets, whose ids follow the N of the
                keys. With 0, other keys get `default_value`.
            key_dtype: The dtype of keys. Defaults to that of `keys`.
            default_value: The id of other keys if there are no buckets.
            hasher_spec: The hash of other keys, or its name.
            name: A name.

        Returns:
            An IdTable, or with buckets an IdTableWithHashBuckets.

        Raises:
            TypeError, ValueError, tf.errors.InvalidArgumentError: As the
                constructors of the two.
        """
        table = cls(
            keys, key_dtype=key_dtype, default_value=default_value, name=name
        )
        return _with_buckets(table, num_oov_buckets, hasher_spec, name)

    @classmethod
    def from_file(
        cls,
        path: TensorLike,
        num_oov_buckets: int = 0,
        *,
        key_column: int = tf.lookup.TextFileIndex.WHOLE_LINE,
        value_column: int = tf.lookup.TextFileIndex.LINE_NUMBER,
        delimiter: str = "\t",
        vocab_size: int | None = None,
        key_dtype: Any = tf.string,
        default_value: int = -1,
        hasher_spec: HasherSpec | str = "fasthash",
        name: str | None = None,
    ) -> "IdTable | IdTableWithHashBuckets":
        r"""Reads a vocabulary from a text file, by default one key per line.

        >>> tf.io.write_file("words.txt", "emerson\nlake\n")
        >>> table = IdTable.from_file("words.txt")
        >>> table.lookup(tf.constant(["lake", "king"])).numpy().tolist()
        [1, -1]

        Args:
            path: The file, as `load_file` reads it.
            num_oov_buckets: The number of buckets, whose ids follow those of the
                file. With 0, other keys get `default_value`.
            key_column: Which column of a line holds the key, counted from 0, or
                a `tf.lookup.TextFileIndex`.
            value_column: Which one holds the id.
            delimiter: One character, between columns.
            vocab_size: The number of lines to read. Defaults to all.
            key_dtype: The dtype of keys.
            default_value: The id of other keys if there are no buckets.
            hasher_spec: The hash of other keys, or its name.
            name: A name.

        Returns:
            An IdTable, or with buckets an IdTableWithHashBuckets.

        Raises:
            ValueError, tf.errors.OpError: As `load_file`.
        """
        table = cls(
            [], key_dtype=key_dtype, default_value=default_value, name=name
        )
        with tf.init_scope():
            table.load_file(
                path,
                key_column=key_column,
                value_column=value_column,
                delimiter=delimiter,
                vocab_size=vocab_size,
            )
        return _with_buckets(table, num_oov_buckets, hasher_spec, name)

    # What TensorFlow calls to make, save and restore the resource; all are
    # traced into a SavedModel, so that it loads without this class.

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_id_table(
            shared_name=shared_name,
            container=container,
            key_dtype=self._key_dtype,
            mutable=self._mutable,
        )

    def _saved_tensors(self) -> dict[str, tf.Tensor]:
        keys, values = map(scalar_if_empty, self.export())
        return {"keys": keys, "values": values}

    def _restore_tensors(
        self, saved: Mapping[str, tf.Tensor]
    ) -> tf.Operation | None:
        return self.load(
            unless_scalar(saved["keys"]), unless_scalar(saved["values"])
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def key_dtype(self) -> tf.DType:
        """The dtype of keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """int64."""
        return tf.int64

    @property
    def default_value(self) -> int:
        """The id of a key that is not there."""
        return self._default_value

    @property
    def mutable(self) -> bool:
        """Whether `insert` and `remove` are allowed."""
        return self._mutable

    def convert_keys(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `keys` as tensors of the table's key dtype.

        Integers of a narrower type are widened.

        Raises:
            TypeError: keys of another kind, unless they are floats in a graph:
                these raise an InvalidArgumentError when the graph runs.
            ValueError: integers of Python or NumPy beyond the key dtype.
        """
        wanted = self._key_dtype
        keys = as_keys(keys, wanted)
        if keys.dtype == wanted:
            return keys
        if (
            keys.dtype in id_table_ops.KEY_DTYPES
            and keys.dtype.is_integer
            and wanted.is_integer
            and keys.dtype.min >= wanted.min
            and keys.dtype.max <= wanted.max
        ):
            return tf.cast(keys, wanted)
        return refuse_keys(
            keys,
            wanted,
            f"`keys` have dtype {keys.dtype.name}, but the keys of table "
            f"'{self._name}' are {wanted.name}.",
        )

    def lookup(
        self,
        keys: AnyTensor | npt.ArrayLike,
        default_value: int | None = None,
        name: str | None = None,
    ) -> AnyTensor:
        """Returns the ids of keys.

        Args:
            keys: Dense of any rank, ragged of any depth, or sparse.
            default_value: In place of the table's.
            name: Of the name scope around the ops.

        Returns:
            int64 ids of the same kind and shape.

        Raises:
            TypeError: keys of another kind.
        """
        if default_value is None:
            default_value = self._default_value
        with _name_scope(name):
            return id_table_ops.find(
                self.resource_handle, self.convert_keys(keys), default_value
            )

    def __getitem__(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def insert(
        self, keys: TensorLike, values: TensorLike
    ) -> tf.Operation | None:
        """Adds keys, or gives them other ids; the last of equal keys wins.

        Args:
            keys: Any shape.
            values: Integers of that shape.

        Raises:
            tf.errors.FailedPreconditionError: the table is not mutable.
            tf.errors.InvalidArgumentError: shapes that differ.
            tf.errors.ResourceExhaustedError: no memory; the table is as before.
        """
        return gen_ops.lodestar_id_table_insert(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=int64_values(values),
        )

    def remove(self, keys: TensorLike) -> tf.Operation | None:
        """Removes keys; those that are not there are passed over.

        Raises:
            tf.errors.FailedPreconditionError: the table is not mutable.
        """
        return gen_ops.lodestar_id_table_remove(
            handle=self.resource_handle, keys=self.convert_keys(keys)
        )

    def load(self, keys: TensorLike, values: TensorLike) -> tf.Operation | None:
        """Makes these keys all that the table holds.

        Args:
            keys: Any shape; a key may repeat with the same id.
            values: Integers of that shape.

        Raises:
            tf.errors.InvalidArgumentError: a key with two values (names the
                key); the table is as before.
        """
        return gen_ops.lodestar_id_table_import(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=int64_values(values),
        )

    def load_file(
        self,
        path: TensorLike,
        *,
        key_column: int = tf.lookup.TextFileIndex.WHOLE_LINE,
        value_column: int = tf.lookup.TextFileIndex.LINE_NUMBER,
        delimiter: str = "\t",
        vocab_size: int | None = None,
    ) -> tf.Operation | None:
        """Makes the keys of a text file all that the table holds.

        A line ends in a newline, or a carriage return and one; none may be
        empty. The file is read piece by piece, from any file system that
        `tf.io.gfile` knows; if its name ends in ".gz" it is decompressed.

        Args:
            path: The file.
            key_column: Where in a line the key is: a column from 0, or a
                `tf.lookup.TextFileIndex`.
            value_column: The same of the id.
            delimiter: One character, between columns.
            vocab_size: The number of lines to read; all by default.

        Raises:
            ValueError: an option out of range.
            tf.errors.NotFoundError: no such file (names it).
            tf.errors.InvalidArgumentError: an empty line, one with too few
                columns or a number that is none, a key with two ids (all name
                the file and the line); too few lines (names the file). The
                table is as before.
        """
        for option, column in (
            ("key_column", key_column),
            ("value_column", value_column),
        ):
            if column < tf.lookup.TextFileIndex.WHOLE_LINE:
                raise ValueError(
                    f"`{option}` is {column}, wanted a column from 0, or a "
                    "TextFileIndex"
                )
        if vocab_size is not None and vocab_size < 1:
            raise ValueError(f"`vocab_size` is {vocab_size}, wanted 1 or more")
        if len(delimiter.encode()) != 1:
            raise ValueError(
                f"`delimiter` is {delimiter!r}, wanted one character"
            )
        return gen_ops.lodestar_id_table_import_file(
            handle=self.resource_handle,
            path=path,
            key_column=key_column,
            value_column=value_column,
            delimiter=delimiter,
            vocab_size=-1 if vocab_size is None else vocab_size,
        )

    def export(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns keys `[N]` and ids `[N]`, in ascending order of ids."""
        return gen_ops.lodestar_id_table_export(
            handle=self.resource_handle, Tkeys=self._key_dtype
        )

    def size(self) -> tf.Tensor:
        """Returns the number of keys, an int64 scalar."""
        return gen_ops.lodestar_id_table_size(handle=self.resource_handle)


def _with_buckets(
    table: IdTable,
    num_oov_buckets: int,
    hasher_spec: HasherSpec | str,
    name: str | None,
) -> "IdTable | IdTableWithHashBuckets":
    if num_oov_buckets == 0:
        return table
    return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, name)


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
        with _name_scope(name):
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
