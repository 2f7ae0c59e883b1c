"""Warm start of tables from dense embeddings, arrays and TFRA's files.

Each function sets rows as `EmbeddingVariable.insert_or_assign` does: it bypasses
admission, new rows start with frequency 0 and initial optimizer slots, and
overwritten rows keep their slots. To restore what `EmbeddingVariable.export`
returned, use `EmbeddingVariable.load_rows`.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_choice, is_integer
from lodestar._files import list_folder
from lodestar._typing import DTypeLike, StrPath, TensorLike
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.dynamic_embedding import DynamicEmbedding
from lodestar.layers.feature import Feature

__all__ = ["from_embedding", "from_tfra"]
__dir__ = __all__.copy

# What to do with rows that a table already has.
Existing: TypeAlias = Literal["overwrite", "keep"]
# Bytes of rows in memory at once.
_CHUNK_BYTES = 16 << 20
_KEY_DTYPES = (tf.int64, tf.int32)
_VALUE_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
# TFRA's suffix of a variable's name: part i of n on a device, process r of s.
_PART = re.compile(r"_mht_(\d+)of(\d+)_rank(\d+)_size(\d+)")
_KEYS, _VALUES = "-keys", "-values"

Target = EmbeddingVariable | Feature | DynamicEmbedding


@explained()
def from_embedding(
    table: Target,
    embedding: keras.layers.Embedding | npt.ArrayLike,
    ids: TensorLike | None = None,
    *,
    id_offset: int = 0,
    existing: Existing = "overwrite",
) -> int:
    """Sets rows of a table from a dense embedding or an array.

    >>> dense = keras.layers.Embedding(1000, 8)
    >>> dense.build()
    >>> lodestar.warm_start.from_embedding(table, dense)
    1000
    >>> lodestar.warm_start.from_embedding(table, np.zeros([2, 8]), [7, -1])
    2

    Args:
        table: An EmbeddingVariable, or a Feature or DynamicEmbedding layer,
            which applies its salt to the ids.
        embedding: A built `keras.layers.Embedding`, or rows `[N, dim]` as a
            tensor or array (a `np.memmap` is read in pieces). Rows are cast to
            the table's dtype.
        ids: The ids of the rows, integers `[N]`, or strings if `table` is a
            Feature or layer. Defaults to `id_offset` to `id_offset + N - 1`.
        id_offset: The id of row 0, if `ids` is not given.
        existing: How to handle an id that has a row: `"overwrite"` sets its
            values, `"keep"` leaves them. Of equal ids the last one wins if rows
            are overwritten, otherwise the first one.

    Returns:
        The number of rows that were set.

    Raises:
        ValueError: The shapes do not fit each other or the table, there are more
            rows than `MaxRows` allows, the Keras layer is not built, both `ids`
            and `id_offset` are given, or an id does not fit int64. Nothing is
            written.
    """
    target = _Target.of(table, existing)
    if isinstance(embedding, keras.layers.Embedding):
        if not embedding.built:
            raise ValueError(
                f"The layer `{embedding.name}` has no matrix yet. Call it, or "
                "`build()`."
            )
        embedding = embedding.embeddings
    rows: Any = (
        embedding.value if isinstance(embedding, keras.Variable) else embedding
    )
    if not hasattr(rows, "shape"):
        rows = np.asarray(rows)
    own_ids: Any = ids
    if ids is None:
        count = int(rows.shape[0]) if len(rows.shape) else 0
        own_ids = _ids_from(id_offset, count)
    elif id_offset:
        raise ValueError(
            f"Only one of `ids` and `id_offset` is allowed, got `id_offset`="
            f"{id_offset} with `ids`."
        )
    if not hasattr(own_ids, "shape"):
        own_ids = np.asarray(own_ids)
    if len(own_ids.shape) != 1:
        raise ValueError(
            "`ids` must have the shape [N], one id per row, got "
            f"{tuple(own_ids.shape)}."
        )
    target.check("embedding", tuple(rows.shape), int(own_ids.shape[0]))
    return target.write(
        (own_ids[part], rows[part])
        for part in _parts(int(own_ids.shape[0]), target.table.output_dim, 4)
    )


@explained()
def from_tfra(
    table: Target,
    files: StrPath | Sequence[tuple[str, str]],
    *,
    output_dim: int,
    key_dtype: DTypeLike = tf.int64,
    value_dtype: DTypeLike = tf.float32,
    existing: Existing = "overwrite",
) -> int:
    """Sets rows from the files of a TensorFlow Recommenders Addons table.

    For each part of a table, TFRA's `FileSystemSaver` and `save_to_file_system`
    write a file of raw keys and a file of raw rows in the same order, without
    header, dtype or `output_dim`. You state these, and the sizes of all files
    are checked before the first row is written. Rows are read in pieces of
    bounded size.

    >>> lodestar.warm_start.from_tfra(table, "saved/user", output_dim=8)
    1000

    Args:
        table: An EmbeddingVariable, or a Feature or DynamicEmbedding layer.
        files: Common path of the files, without `-keys` and `-values`. To read
            all parts, also without `_mht_<i>of<n>_rank<r>_size<s>`; no part may
            be missing. Or pairs (file of keys, file of values). Any
            `tf.io.gfile` scheme is supported.
        output_dim: Embedding dimension of the files, which must be the table's.
        key_dtype: Dtype of the keys: int64 or int32.
        value_dtype: Dtype of the values: float32, float64, float16 or bfloat16.
            Values are cast to the table's dtype.
        existing: How to handle an id that has a row: `"overwrite"` or `"keep"`,
            see `from_embedding`. Duplicates across files count as duplicates.

    Returns:
        The number of rows that were set.

    Raises:
        ValueError: Files or parts are missing, a file's size does not match
            `output_dim` and the dtypes, or the rows do not fit the table.
            Nothing is written.
        tf.errors.DataLossError: A file was truncated while it was read. Rows
            before that offset are set.
        tf.errors.OpError: A file cannot be read.
    """
    target = _Target.of(table, existing)
    key_dtype = _dtype("key_dtype", key_dtype, _KEY_DTYPES)
    value_dtype = _dtype("value_dtype", value_dtype, _VALUE_DTYPES)
    pairs = (
        _pairs_of(os.fspath(files))
        if isinstance(files, (str, os.PathLike))
        else [_pair(pair) for pair in files]
    )
    if output_dim != target.table.output_dim:
        raise ValueError(
            f"`output_dim` must be that of {target.table!r}, got {output_dim}."
        )
    counts = [
        _count(keys, values, output_dim, key_dtype, value_dtype)
        for keys, values in pairs
    ]
    target.check("files", (sum(counts), output_dim), sum(counts))

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for (keys, values), count in zip(pairs, counts):
            with (
                tf.io.gfile.GFile(keys, "rb") as key_file,
                tf.io.gfile.GFile(values, "rb") as value_file,
            ):
                for part in _parts(count, output_dim, value_dtype.size):
                    size = part.stop - part.start
                    ids = _read(key_file, keys, size, key_dtype)
                    numbers = _read(
                        value_file, values, size * output_dim, value_dtype
                    )
                    yield ids, numbers.reshape(size, output_dim)

    return target.write(chunks())


def _ids_from(offset: Any, count: int) -> np.ndarray:
    """Returns `offset`, `offset` + 1, ..."""
    if not is_integer(offset):
        raise ValueError(f"`id_offset` must be an integer, got {offset!r}.")
    begin, end = int(offset), int(offset) + count
    limits = np.iinfo(np.int64)
    if begin < limits.min or end - 1 > limits.max:
        raise ValueError(
            f"`id_offset`={begin} gives {count} rows ids from {begin} to "
            f"{end - 1}, which do not fit int64."
        )
    return np.arange(count, dtype=np.int64) + np.int64(begin)


class _Target(NamedTuple):
    """A table to write to, its id conversion, and whether rows are kept."""

    table: EmbeddingVariable
    to_ids: Callable[[Any], tf.Tensor]
    keep: bool

    @classmethod
    def of(cls, target: Target, existing: Existing) -> "_Target":
        check_choice("existing", existing, get_args(Existing))
        keep = existing == "keep"
        if isinstance(target, EmbeddingVariable):
            return cls(target, ids_lib.to_int64, keep)
        feature = target
        if isinstance(target, DynamicEmbedding):
            feature = target._feature
        if not isinstance(feature, Feature):
            raise ValueError(
                "`table` must be a lodestar.EmbeddingVariable, Feature or "
                f"DynamicEmbedding layer, got {type(target).__name__}."
            )
        if feature.table is None:
            raise ValueError(
                f"{feature!r} has no table yet. Use the feature of the built "
                "collection, `collection.features[name]`."
            )
        return cls(feature.table, feature.table_ids, keep)

    def check(self, name: str, shape: tuple[int, ...], count: int) -> None:
        """Raises ValueError unless `shape` is `count` rows of the table."""
        if len(shape) != 2 or shape[1] != self.table.output_dim:
            raise ValueError(
                f"`{name}` must have the shape [{count}, "
                f"{self.table.output_dim}] for {self.table!r}, got "
                f"{list(shape)}."
            )
        if shape[0] != count:
            raise ValueError(
                f"`{name}` has {shape[0]} rows, but there are {count} ids."
            )
        cap = self.table.stats()["max_rows"]
        if cap is not None and count > cap:
            raise ValueError(
                f"`{name}` has {count} rows, but {self.table!r} allows at most "
                f"{cap} (`MaxRows`)."
            )

    def write(self, chunks: Iterator[tuple[Any, Any]]) -> int:
        """Returns the number of rows that were set."""
        written = 0
        for ids, rows in chunks:
            ids = self.to_ids(ids)
            if self.keep:
                _, first = np.unique(ids, return_index=True)
                _, found = self.table.find(ids)
                new = np.sort(first[~found.numpy()[first]])
                ids, rows = tf.gather(ids, new), tf.gather(rows, new)
            self.table.insert_or_assign(ids, rows)
            written += int(ids.shape[0])
        return written


def _parts(count: int, dim: int, item_bytes: int) -> Iterator[slice]:
    size = max(1, _CHUNK_BYTES // (dim * item_bytes))
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def _dtype(name: str, dtype: Any, allowed: tuple[tf.DType, ...]) -> tf.DType:
    dtype = tf.as_dtype(dtype)
    if dtype not in allowed:
        names = [each.name for each in allowed]
        raise ValueError(f"`{name}` must be one of {names}, got {dtype.name}.")
    return dtype


def _pair(pair: Any) -> tuple[str, str]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(
            "`files` must be pairs (file of keys, file of values), got "
            f"{pair!r}."
        )
    keys, values = pair
    return os.fspath(keys), os.fspath(values)


def _pairs_of(prefix: str) -> list[tuple[str, str]]:
    """Returns the pairs of files that `prefix` names."""
    gfile = tf.io.gfile
    if gfile.exists(prefix + _KEYS):
        return [(prefix + _KEYS, prefix + _VALUES)]
    folder, name = os.path.split(prefix)
    folder = folder or "."
    entries = set(list_folder(folder)) if gfile.isdir(folder) else set()
    found: dict[tuple[int, ...], str] = {}
    for entry in entries:
        for end in (_KEYS, _VALUES):
            if entry.startswith(name) and entry.endswith(end):
                stem = entry[len(name) : -len(end)]
                match = _PART.fullmatch(stem)
                if match:
                    part = tuple(int(number) for number in match.groups())
                    found[part] = stem
    if not found:
        raise ValueError(
            f"Found no files of {prefix!r} in {folder!r}: expected "
            f"{name + _KEYS!r} or {name}_mht_<i>of<n>_rank<r>_size<s>{_KEYS}."
        )
    kinds = sorted({(n, s) for _, n, _, s in found})
    if len(kinds) > 1:
        raise ValueError(
            f"The files of {prefix!r} come from several saves: "
            + ", ".join(f"{n} parts in {s} processes" for n, s in kinds)
            + ". Pass the pairs of one of them."
        )
    n, s = kinds[0]
    wanted = [
        f"_mht_{i}of{n}_rank{r}_size{s}"
        for r in range(s)
        for i in range(1, n + 1)
    ]
    missing = [
        name + stem + end
        for stem in wanted
        for end in (_KEYS, _VALUES)
        if name + stem + end not in entries
    ]
    if missing:
        raise ValueError(
            f"Files of {prefix!r} are missing in {folder!r}: {missing}."
        )
    others = sorted(name + stem for stem in set(found.values()) - set(wanted))
    if others:
        raise ValueError(
            f"Files of {prefix!r} are not among {n} parts in {s} processes: "
            f"{others}."
        )
    return [(prefix + stem + _KEYS, prefix + stem + _VALUES) for stem in wanted]


def _count(
    keys: str,
    values: str,
    dim: int,
    key_dtype: tf.DType,
    value_dtype: tf.DType,
) -> int:
    """Returns the number of rows. Raises ValueError that names the file."""
    for path in (keys, values):
        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise ValueError(f"The file {path!r} does not exist.")
    size = tf.io.gfile.stat(keys).length
    if size % key_dtype.size:
        raise ValueError(
            f"{keys!r} has {size} bytes, which is not a multiple of the "
            f"{key_dtype.size} bytes of a {key_dtype.name} key."
        )
    count = size // key_dtype.size
    wanted = count * dim * value_dtype.size
    size = tf.io.gfile.stat(values).length
    if size != wanted:
        raise ValueError(
            f"{values!r} must have {wanted} bytes, got {size}: {count} rows "
            f"(the keys in {keys!r}) of {dim} {value_dtype.name} values."
        )
    return count


def _read(file: Any, path: str, count: int, dtype: tf.DType) -> np.ndarray:
    begin = file.tell()
    data = file.read(count * dtype.size)
    if len(data) != count * dtype.size:
        raise tf.errors.DataLossError(
            None,
            None,
            f"{path!r} was truncated while it was read: it ends at byte "
            f"{begin + len(data)}, expected {count * dtype.size} bytes at "
            f"{begin}.",
        )
    return np.frombuffer(data, dtype.as_numpy_dtype)
