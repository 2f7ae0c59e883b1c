"""A user's program for the type checker; it is never run."""

from typing import Any, assert_type

import numpy as np
import tensorflow as tf

import lodestar
from lodestar.data import Schema
from lodestar.lookup import IdTable
from lodestar.snapshot.info import SnapshotInfo
from lodestar.snapshot.saving import PendingSnapshot


def tables(ids: tf.RaggedTensor) -> None:
    table = lodestar.EmbeddingVariable(
        8, admission=lodestar.MinCount(2), eviction=lodestar.MaxRows(1000)
    )
    assert_type(table, lodestar.EmbeddingVariable)
    assert_type(table.output_dim, int)
    layer = lodestar.layers.DynamicEmbedding(8, combiner="mean")
    assert_type(layer.table, lodestar.EmbeddingVariable)
    assert_type(layer.output_dim, int)
    lodestar.EmbeddingVariable("8")  # type: ignore[arg-type]
    lodestar.MinCount(n="2")  # type: ignore[arg-type]


def sequences(x: lodestar.ragged.LoDTensor) -> None:
    assert_type(lodestar.sequence.softmax(x), lodestar.ragged.LoDTensor)
    assert_type(x.num_levels, int)
    padded, lengths = lodestar.sequence.pad(x, maxlen=3)
    lodestar.sequence.unpad(padded, lengths).to_list()
    assert_type(
        lodestar.sequence.unpad(padded, lengths, like=x),
        lodestar.ragged.LoDTensor,
    )
    rows, index = lodestar.sequence.pool(x, "max", with_index=True)


def data(folder: str) -> None:
    spec = Schema.load(f"{folder}/schema.yaml")
    assert_type(spec, Schema)
    lodestar.data.open_dataset([f"{folder}/part-0"], spec, 512)
    lodestar.data.open_dataset("a", spec, "b")  # type: ignore[arg-type]
    assert_type(lodestar.data.Column.label("click"), lodestar.data.Column)


def lookups() -> None:
    table = IdTable.from_file("words.txt", 1)
    assert_type(table, IdTable)
    table.lookup(np.array(["a"]))
    table.lookup(["a"], nam="x")  # type: ignore[call-arg]


def snapshots(
    folder: str, table: lodestar.EmbeddingVariable, model: Any, blocking: bool
) -> None:
    info = lodestar.snapshot.save({"table": table}, folder, delta=True)
    assert_type(info, SnapshotInfo)
    pending = lodestar.snapshot.save(table, folder, blocking=False)
    assert_type(pending.wait(), SnapshotInfo)
    assert_type(
        lodestar.snapshot.save(table, folder, blocking=blocking),
        SnapshotInfo | PendingSnapshot,
    )
    assert_type(lodestar.snapshot.save(model, folder).step, int)
    lodestar.snapshot.save(model, folder, blocking=False).cancel()
    report = lodestar.snapshot.restore({"table": table}, folder)
    assert_type(report.dense, dict[str, np.ndarray])
    lodestar.snapshot.save(table, folder, delta="yes")  # type: ignore[call-overload]
