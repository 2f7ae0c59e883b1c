"""IdTable: maps keys to int64 ids."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy.typing as npt
import tensorflow as tf

from lodestar import _private
from lodestar._arguments import explained
from lodestar._checks import check_name
from lodestar._library import gen_ops
from lodestar._resource import SavedResource, scalar_if_empty, unless_scalar
from lodestar._typing import AnyTensor, StrPath, TensorLike
from lodestar.lookup.keys import as_keys, contents, int64_values, refuse_keys
from lodestar.ops import id_table_ops


class IdTable(SavedResource):
    """A table that maps string or integer keys to int64 ids.

    >>> table = IdTable(["emerson", "lake", "palmer"])
    >>> table.lookup(tf.constant(["lake", "nobody"])).numpy().tolist()
    [1, -1]

    A missing key has the id `default_value`. `IdTableWithHashBuckets` hashes
    missing keys to ids that follow the last key's.

    The handle works with `tf.raw_ops.LookupTable*`. Checkpoints and SavedModels
    hold the content. A mutable table is thread-safe. Lookups run on the CPU.

    Args:
        keys: String or integers of shape `[N]`, or a `tf.lookup` initializer
            with int64 values.
        values: Integers of shape `[N]`. Defaults to 0, 1, 2, ...
        default_value: The id of missing keys.
        key_dtype: String or an integer dtype. Defaults to the dtype of `keys`.
            uint64 keys are taken as the int64 of the same bits, as in
            TensorFlow.
        mutable: Whether to allow `insert` and `remove`.
        name: A name, which need not be unique.

    Raises:
        TypeError: `keys` are neither strings nor integers, or `values` are not
            integers.
        ValueError: `keys` is not a vector, is empty without a `key_dtype`, or
            has a key that does not fit it; or `values` has another shape.
        tf.errors.InvalidArgumentError: A key has two values (names the key).
        tf.errors.ResourceExhaustedError: Out of memory.
    """

    @explained()
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
        with tf.init_scope(), tf.device("CPU"):
            keys, values = contents(keys, values, key_dtype)
        super().__init__(self._name)
        self._default_value = int(default_value)
        self._mutable = bool(mutable)
        with tf.init_scope():
            self._key_dtype = keys.dtype
            self.load(keys, values)

    @classmethod
    def from_file(
        cls,
        path: StrPath | tf.Tensor,
        *,
        key_column: int = tf.lookup.TextFileIndex.WHOLE_LINE,
        value_column: int = tf.lookup.TextFileIndex.LINE_NUMBER,
        delimiter: str = "\t",
        vocab_size: int | None = None,
        key_dtype: Any = tf.string,
        default_value: int = -1,
        name: str | None = None,
    ) -> Self:
        r"""Creates a table from a vocabulary file, by default of one key per line.

        >>> tf.io.write_file("words.txt", "emerson\nlake\n")
        >>> table = IdTable.from_file("words.txt")
        >>> table.lookup(tf.constant(["lake", "king"])).numpy().tolist()
        [1, -1]

        Args:
            path: Path of the file, which `load_file` reads.
            key_column: Column of the key, counted from 0, or a
                `tf.lookup.TextFileIndex`.
            value_column: Column of the id, or a `tf.lookup.TextFileIndex`.
            delimiter: One character that separates columns.
            vocab_size: Number of lines to read. Defaults to all.
            key_dtype: String or an integer dtype.
            default_value: The id of missing keys.
            name: A name, which need not be unique.

        Returns:
            An IdTable.

        Raises:
            ValueError: An option is out of range.
            tf.errors.OpError: The file is missing or malformed, see `load_file`.
        """
        table = cls(
            [],
            key_dtype=key_dtype,
            default_value=default_value,
            name=name,
        )
        with tf.init_scope():
            table.load_file(
                path,
                key_column=key_column,
                value_column=value_column,
                delimiter=delimiter,
                vocab_size=vocab_size,
            )
        return table

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._name!r} {describe_keys(self)} "
            f"default_value={self._default_value} mutable={self._mutable}>"
        )

    # TensorFlow calls these to make, save and restore the resource, and traces
    # them into a SavedModel, which therefore loads without this class.

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
        """The id of missing keys."""
        return self._default_value

    @property
    def mutable(self) -> bool:
        """Whether `insert` and `remove` are allowed."""
        return self._mutable

    def convert_keys(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `keys` as tensors of the table's key dtype.

        Integers of a narrower type are widened.

        Raises:
            TypeError: `keys` have another dtype. Floats in a graph raise a
                tf.errors.InvalidArgumentError when the graph runs instead.
            ValueError: Integers of Python or NumPy do not fit the key dtype.
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
            keys: A dense tensor of any rank, a RaggedTensor or a SparseTensor.
            default_value: The id of missing keys. Defaults to the table's.
            name: Name scope of the ops.

        Returns:
            int64 ids of the same kind and shape as `keys`.

        Raises:
            TypeError: `keys` are not of the table's key dtype.
        """
        scope = (
            contextlib.nullcontext() if name is None else tf.name_scope(name)
        )
        with scope:
            keys = self.convert_keys(keys)
            if default_value is None:
                default_value = self._default_value
            return id_table_ops.find(self.resource_handle, keys, default_value)

    def __getitem__(self, keys: AnyTensor | npt.ArrayLike) -> AnyTensor:
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def insert(
        self, keys: TensorLike, values: TensorLike
    ) -> tf.Operation | None:
        """Inserts keys or assigns new ids to them. The last of equal keys wins.

        Args:
            keys: String or integers of any shape.
            values: Integers of the same shape.

        Raises:
            tf.errors.FailedPreconditionError: The table is not mutable.
            tf.errors.InvalidArgumentError: The shapes differ.
            tf.errors.ResourceExhaustedError: Out of memory. The table is
                unchanged.
        """
        return gen_ops.lodestar_id_table_insert(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=int64_values(values),
        )

    def remove(self, keys: TensorLike) -> tf.Operation | None:
        """Removes keys. Missing keys are ignored.

        Args:
            keys: String or integers of any shape.

        Raises:
            tf.errors.FailedPreconditionError: The table is not mutable.
        """
        return gen_ops.lodestar_id_table_remove(
            handle=self.resource_handle, keys=self.convert_keys(keys)
        )

    def load(self, keys: TensorLike, values: TensorLike) -> tf.Operation | None:
        """Replaces the content of the table, atomically.

        Args:
            keys: String or integers of any shape. A key may repeat with the
                same id.
            values: Integers of the same shape.

        Raises:
            tf.errors.InvalidArgumentError: A key has two values (names the
                key). The table is unchanged.
        """
        return gen_ops.lodestar_id_table_import(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=int64_values(values),
        )

    def load_file(
        self,
        path: StrPath | tf.Tensor,
        *,
        key_column: int = tf.lookup.TextFileIndex.WHOLE_LINE,
        value_column: int = tf.lookup.TextFileIndex.LINE_NUMBER,
        delimiter: str = "\t",
        vocab_size: int | None = None,
    ) -> tf.Operation | None:
        r"""Replaces the content of the table by a vocabulary file, atomically.

        Lines end in `\n` or `\r\n` and may not be empty. A UTF-8 byte order mark at
        the start of the file is not part of a key; that of UTF-16 is an error. Other
        bytes are the key as they are, so the file must have the encoding of the
        strings to look up: UTF-8 in all features of Lodestar. The file is read in
        pieces from any file system that `tf.io.gfile` supports. A file whose
        name ends in ".gz" is decompressed.

        Args:
            path: Path of the file.
            key_column: Column of the key, counted from 0, or a
                `tf.lookup.TextFileIndex`.
            value_column: Column of the id, or a `tf.lookup.TextFileIndex`.
            delimiter: One character that separates columns.
            vocab_size: Number of lines to read. Defaults to all.

        Raises:
            ValueError: An option is out of range.
            tf.errors.NotFoundError: The file does not exist (names it).
            tf.errors.InvalidArgumentError: A line is empty, has too few columns
                or an invalid number, or a key has two ids (names the file and
                the line); or the file has too few lines (names the file). The
                table is unchanged.
        """
        for option, column in (
            ("key_column", key_column),
            ("value_column", value_column),
        ):
            if column < tf.lookup.TextFileIndex.WHOLE_LINE:
                raise ValueError(
                    f"`{option}` must be a column, counted from 0, or a "
                    f"tf.lookup.TextFileIndex, got {column}."
                )
        if vocab_size is not None and vocab_size < 1:
            raise ValueError(
                f"`vocab_size` must be at least 1, got {vocab_size}."
            )
        if len(delimiter.encode()) != 1:
            raise ValueError(
                f"`delimiter` must be one character, got {delimiter!r}."
            )
        return gen_ops.lodestar_id_table_import_file(
            handle=self.resource_handle,
            path=path if tf.is_tensor(path) else os.fspath(path),
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

    def memory_used(self) -> tf.Tensor:
        """Returns the bytes of the keys and ids, an int64 scalar."""
        return gen_ops.lodestar_id_table_memory_used(
            handle=self.resource_handle
        )


def describe_keys(table: IdTable) -> str:
    """Describes the keys of `table`; without their number if it is not available."""
    dtype = f"key_dtype={table.key_dtype.name}"
    handle = table.resource_handle
    if tf.is_symbolic_tensor(handle):
        return dtype
    try:
        with _private.eager_mode():
            return f"keys={int(table.size())} {dtype}"
    except tf.errors.OpError:  # The server of the table has ended.
        return dtype
