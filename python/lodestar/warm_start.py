"""Warm start: rows from dense embeddings, arrays and TFRA's files.

Every function adds rows to a table as `EmbeddingVariable.insert_or_assign`
does: no admission is asked, rows that are new start with frequency 0 and fresh
optimizer slots, those that are overwritten keep theirs. Rows that
`EmbeddingVariable.export` gave go back by its `load_rows`, whole; keys of a
vocabulary go into an id table by `lodestar.lookup.IdTable.load`.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import check_choice, is_integer
from lodestar._files import list_folder
from lodestar._typing import StrPath
from lodestar.embedding import ids as ids_lib
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.layers.dynamic_embedding import DynamicEmbedding
from lodestar.layers.feature import Feature

__all__ = ["from_arrays", "from_embedding", "from_tfra"]

_EXISTING = ("overwrite", "keep")
# Of rows that are held at once.
_CHUNK_BYTES = 16 << 20
_KEY_DTYPES = (tf.int64, tf.int32)
_VALUE_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
# What TFRA puts behind the name of a variable: its part i of n on a device,
# and its process r of s.
_PART = re.compile(r"_mht_(\d+)of(\d+)_rank(\d+)_size(\d+)")
_KEYS, _VALUES = "-keys", "-values"

Target = EmbeddingVariable | Feature | DynamicEmbedding


def from_arrays(
    table: Target, ids: Any, rows: Any, *, existing: str = "overwrite"
) -> int:
    """Sets the rows of `ids`.

    >>> lodestar.warm_start.from_arrays(table, [7, -1], np.zeros([2, 8]))
    2

    Args:
        table: Takes the rows: an EmbeddingVariable; or a Feature or
            DynamicEmbedding layer, whose salt the ids are given.
        ids: Integers `[N]`; strings too where `table` is a Feature or layer.
        rows: `[N, dim]`, an array (a `np.memmap` is read in pieces) or tensor;
            cast to the table's dtype.
        existing: What happens to an id that has a row: `"overwrite"` sets its
            values, `"keep"` leaves them. Of equal ids in `ids`, the last counts
            where rows are overwritten, else the first.

    Returns:
        The number of rows set.

    Raises:
        ValueError: Shapes do not fit each other or the table, or there are
            more rows than its `MaxRows` allows; nothing has been written.
    """
    target = _Target.of(table, existing)
    if not hasattr(rows, "shape"):
        rows = np.asarray(rows)
    if not hasattr(ids, "shape"):
        ids = np.asarray(ids)
    if len(ids.shape) != 1:
        raise ValueError(
            f"`ids` has shape {tuple(ids.shape)}, wanted [N], one id for each "
            "row."
        )
    target.check("rows", tuple(rows.shape), int(ids.shape[0]))
    return target.write(
        (ids[part], rows[part])
        for part in _parts(int(ids.shape[0]), target.table.output_dim, 4)
    )


def from_embedding(
    table: Target,
    embedding: Any,
    *,
    ids: Any = None,
    id_offset: int = 0,
    existing: str = "overwrite",
) -> int:
    """Sets rows from a dense embedding: row i is that of id i.

    >>> dense = keras.layers.Embedding(1000, 8)
    >>> dense.build()
    >>> lodestar.warm_start.from_embedding(table, dense)
    1000

    Args:
        table: As for `from_arrays`.
        embedding: A `keras.layers.Embedding` that is built, or its matrix
            `[N, dim]`.
        ids: Integers `[N]`, the ids of the rows, in place of 0 to N - 1.
        id_offset: Row i is that of id i + `id_offset`.
        existing: As for `from_arrays`.

    Returns:
        The number of rows set.

    Raises:
        ValueError: As `from_arrays`; or the layer is not built; or `ids` and
            `id_offset` are given both; or an id is beyond int64.
    """
    if isinstance(embedding, keras.layers.Embedding):
        if not embedding.built:
            raise ValueError(
                f"The layer `{embedding.name}` has no matrix yet; call it, or "
                "`build()`."
            )
        embedding = embedding.embeddings
    if isinstance(embedding, keras.Variable):
        embedding = embedding.value
    if not hasattr(embedding, "shape"):
        embedding = np.asarray(embedding)
    if ids is None:
        count = int(embedding.shape[0]) if len(embedding.shape) else 0
        ids = _ids_from(id_offset, count)
    elif id_offset:
        raise ValueError(
            f"`ids` and `id_offset`={id_offset} are given; wanted one of them."
        )
    return from_arrays(table, ids, embedding, existing=existing)


def from_tfra(
    table: Target,
    files: StrPath | Sequence[tuple[str, str]],
    *,
    output_dim: int,
    key_dtype: Any = tf.int64,
    value_dtype: Any = tf.float32,
    existing: str = "overwrite",
) -> int:
    """Sets rows from the files of a TensorFlow Recommenders Addons table.

    Its `FileSystemSaver` and `save_to_file_system` write for each part of a
    table raw keys, and beside them raw rows in the same order, without header,
    dtype or `output_dim`; these are given here, and checked against the sizes
    of all files before the first row is written. Rows are read in pieces of a bounded
    size.

    >>> lodestar.warm_start.from_tfra(table, "saved/user", output_dim=8)
    1000

    Args:
        table: As for `from_arrays`.
        files: The path of the files without `-keys` and `-values`; or without
            `_mht_<i>of<n>_rank<r>_size<s>` before it, too: then of all parts,
            which must be there. Or pairs (file of keys, file of values). Of
            any `tf.io.gfile` scheme.
        output_dim: Numbers in a row; must be the table's.
        key_dtype: Of the keys: int64 or int32.
        value_dtype: Of the values: float32, float64, float16 or bfloat16; cast
            to the table's dtype.
        existing: As for `from_arrays`; an id in several files counts as
            one that comes several times.

    Returns:
        The number of rows set.

    Raises:
        ValueError: There are no such files, or parts are missing; a file has
            another size than `output_dim` and the dtypes ask for; or as
            `from_arrays`. Nothing has been written.
        tf.errors.DataLossError: A file became shorter while it was read; rows
            before that place are set.
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
            f"`output_dim` is {output_dim}, but {target.table!r} is to take "
            "the rows; wanted equal dims."
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
    """`offset`, `offset` + 1, ..."""
    if not is_integer(offset):
        raise ValueError(f"`id_offset`={offset!r} is no integer.")
    begin, end = int(offset), int(offset) + count
    limits = np.iinfo(np.int64)
    if begin < limits.min or end - 1 > limits.max:
        raise ValueError(
            f"`id_offset`={begin} gives {count} rows the ids {begin} to "
            f"{end - 1}, which are beyond int64."
        )
    return np.arange(count, dtype=np.int64) + np.int64(begin)


class _Target(NamedTuple):
    """Where rows go, by which ids, and what becomes of those there."""

    table: EmbeddingVariable
    to_ids: Callable[[Any], tf.Tensor]
    keep: bool

    @classmethod
    def of(cls, target: Target, existing: str) -> "_Target":
        check_choice("existing", existing, _EXISTING)
        keep = existing == "keep"
        if isinstance(target, EmbeddingVariable):
            return cls(target, ids_lib.to_int64, keep)
        feature = target
        if isinstance(target, DynamicEmbedding):
            feature = target.feature
        if not isinstance(feature, Feature):
            raise ValueError(
                f"`table` is a {type(target).__name__}, wanted a "
                "lodestar.EmbeddingVariable, Feature or DynamicEmbedding layer."
            )
        if feature.table is None:
            raise ValueError(
                f"{feature!r} has no table yet: the collection makes it, and "
                "`collection.features[name]` has it."
            )
        return cls(feature.table, feature.table_ids, keep)

    def check(self, name: str, shape: tuple[int, ...], count: int) -> None:
        """Raises ValueError unless `count` rows of `shape` can be taken."""
        if len(shape) != 2 or shape[1] != self.table.output_dim:
            raise ValueError(
                f"`{name}` has rows of shape {list(shape)}, but {self.table!r} "
                f"is to take them; wanted [{count}, {self.table.output_dim}]."
            )
        if shape[0] != count:
            raise ValueError(
                f"`{name}` has {shape[0]} rows, but `ids` has {count} ids."
            )
        cap = self.table.stats()["max_rows"]
        if cap is not None and count > cap:
            raise ValueError(
                f"`{name}` has {count} rows, but {self.table!r} may have "
                f"{cap} (`MaxRows`)."
            )

    def write(self, chunks: Iterator[tuple[Any, Any]]) -> int:
        """Returns how many rows were set."""
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
        raise ValueError(f"`{name}` is {dtype.name}, not in {names}.")
    return dtype


def _pair(pair: Any) -> tuple[str, str]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(
            f"`files` has {pair!r}, wanted pairs (file of keys, file of "
            "values)."
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
            f"There are no files of {prefix!r}: wanted {name + _KEYS!r}, or "
            f"{name}_mht_<i>of<n>_rank<r>_size<s>{_KEYS}, in "
            f"{folder!r}."
        )
    kinds = sorted({(n, s) for _, n, _, s in found})
    if len(kinds) > 1:
        raise ValueError(
            f"The files of {prefix!r} are of several saves: "
            + ", ".join(f"{n} parts in {s} processes" for n, s in kinds)
            + ". Give the pairs of one of them."
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
            f"Files of {prefix!r} have the numbers of no part of {n} in {s} "
            f"processes: {others}."
        )
    return [(prefix + stem + _KEYS, prefix + stem + _VALUES) for stem in wanted]


def _count(
    keys: str,
    values: str,
    dim: int,
    key_dtype: tf.DType,
    value_dtype: tf.DType,
) -> int:
    """Returns the number of rows, or raises ValueError naming the file."""
    for path in (keys, values):
        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise ValueError(f"There is no file {path!r}.")
    size = tf.io.gfile.stat(keys).length
    if size % key_dtype.size:
        raise ValueError(
            f"{keys!r} has {size} bytes, which is no whole number of "
            f"{key_dtype.name} keys of {key_dtype.size} bytes."
        )
    count = size // key_dtype.size
    wanted = count * dim * value_dtype.size
    size = tf.io.gfile.stat(values).length
    if size != wanted:
        raise ValueError(
            f"{values!r} has {size} bytes, wanted {wanted}: {count} rows, as "
            f"many as {key_dtype.name} keys in {keys!r}, of {dim} "
            f"{value_dtype.name} numbers."
        )
    return count


def _read(file: Any, path: str, count: int, dtype: tf.DType) -> np.ndarray:
    begin = file.tell()
    data = file.read(count * dtype.size)
    if len(data) != count * dtype.size:
        raise tf.errors.DataLossError(
            None,
            None,
            f"{path!r} ends at byte {begin + len(data)}, wanted "
            f"{count * dtype.size} bytes at {begin}: it became shorter.",
        )
    return np.frombuffer(data, dtype.as_numpy_dtype)
