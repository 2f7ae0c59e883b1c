"""A user's program with mistakes for the type checker; it is never run.

mypy must find an error on each line that ends in `# mistake`, and on no other.
"""

import keras
import tensorflow as tf

import lodestar
from lodestar.callbacks import EarlyStopping, Evict, Snapshot, TableStats
from lodestar.data import Column, Schema, open_dataset, open_writer
from lodestar.layers import DynamicEmbedding, EmbeddingCollection, IdLookup
from lodestar.ragged import LoDTensor


def tables(ids: tf.Tensor) -> None:
    table = lodestar.EmbeddingVariable(16, name="user")
    lodestar.EmbeddingVariable(16, admision=lodestar.MinCount(2))  # mistake
    lodestar.EmbeddingVariable(16, admission=lodestar.MaxRows(9))  # mistake
    lodestar.EmbeddingVariable(16, rounding="up")  # mistake
    lodestar.EmbeddingVariable(16, default_row="zero")  # mistake
    lodestar.EmbeddingVariable(16, optimizer=lodestar.MaxAge(3))  # mistake
    lodestar.MinCount(2, unit="occurrences")  # mistake
    lodestar.MaxRows(1000, policy="fifo")  # mistake
    lodestar.CountingBloom(2, expected_ids=1000)  # mistake
    table.lookup(ids, combiner="avg")  # mistake
    table.load_rows(table.export(), mode="append")  # mistake
    table.load_rows("rows.npz")  # mistake
    table.exports()  # mistake
    print(table.export().slots)  # mistake
    print(table.find(ids).shape)  # mistake
    table.evict(lodestar.MaxAge(3), return_rows=True).numpy()  # mistake
    lodestar.hash_ids(ids, colum="user")  # mistake


def layers(ids: tf.Tensor) -> None:
    layer = DynamicEmbedding(16, combiner="average")  # mistake
    DynamicEmbedding(16, padding_ids=0)  # mistake
    DynamicEmbedding(16, eviction="lru")  # mistake
    layer.tabel.size()  # mistake
    print(layer.output_dim.shape)  # mistake
    lodestar.Feature("16")  # mistake
    lodestar.Feature(output_dim=16, combine="mean")  # mistake
    lodestar.Feature(output_dim=16, combiner="average")  # mistake
    EmbeddingCollection({"user": "16"})  # mistake
    print(EmbeddingCollection({"user": 16}).table)  # mistake
    IdLookup(["a", "b"], output_mode="onehot")  # mistake
    IdLookup(["a", "b"]).vocabulary()  # mistake
    lodestar.layers.SequenceConv(8, kernel=3)  # mistake


def data(folder: str) -> None:
    train = open_dataset(folder, label="click", split=0.1)
    train.map(lambda x, y: (x, y))  # mistake
    open_dataset(folder, batchsize=256)  # mistake
    open_dataset(folder, "schema.yaml", "256")  # mistake
    open_dataset(folder, format="csv.gz")  # mistake
    open_dataset(folder, on_error="ignore")  # mistake
    open_dataset(folder, sparse="coo")  # mistake
    print(open_dataset(folder).schemas)  # mistake
    open_writer("a.parquet", "schema.yaml", format="pq")  # mistake
    open_writer("a.parquet", "schema.yaml").write([1, 2])  # mistake
    Schema("schema.yaml")  # mistake
    print(Schema.load("schema.yaml").feature_names)  # mistake
    Column("user", "categorical")  # mistake
    Column.sparse("user", encoding="hashed")  # mistake
    Column.sparse("time", units="s")  # mistake
    Column.one_hot("day", "7")  # mistake
    lodestar.data.files_by_day("a/{day}", 20240101, 20240102)  # mistake


def training(model: keras.Model, data: tf.data.Dataset) -> None:
    lodestar.optimizers.Adam(lr=0.1)  # mistake
    lodestar.optimizers.Adagrad(0.1, epsilom=1e-6)  # mistake
    lodestar.optimizers.SGD("0.1")  # mistake
    lodestar.optimizers.SGD(0.1, nonfinite="ignore")  # mistake
    print(lodestar.optimizers.Adam(0.1).learning_rates)  # mistake
    lodestar.train.fit("model.keras", data)  # mistake
    lodestar.train.fit(model, data, epoch=2)  # mistake
    lodestar.train.fit(model, data, snapshots=3)  # mistake
    lodestar.train.evaluate(model, data, steps="9")  # mistake
    Evict("batch")  # mistake
    Evict(100, policy="lru")  # mistake
    Snapshot("snapshots", every_n_steps="batch")  # mistake
    Snapshot("snapshots", on_error="ignore")  # mistake
    TableStats("logs", update_freq="step")  # mistake
    EarlyStopping(mode="maximum")  # mistake
    lodestar.metrics.BatchAUC(slide_steps="20")  # mistake
    lodestar.metrics.BatchAUC().results()  # mistake


def snapshots(model: keras.Model) -> None:
    lodestar.snapshot.restore(model, "snapshots", on_missing="ignor")  # mistake
    report = lodestar.snapshot.restore(model, "snapshots")
    lodestar.snapshot.save("snapshots", model)  # mistake
    print(report.tables)  # mistake
    print(lodestar.snapshot.versions("snapshots").version)  # mistake
    print(lodestar.snapshot.versions("snapshots")[0].size)  # mistake
    lodestar.snapshot.compact("snapshots", keep="3")  # mistake
    print(lodestar.snapshot.copy("a", "b").files)  # mistake
    lodestar.warm_start.from_embedding("table", model)  # mistake


def serving(model: keras.Model) -> None:
    lodestar.export.save("model.keras", "served")  # mistake
    lodestar.export.save(model, "served", signature="sparse")  # mistake
    lodestar.export.save(model, "served", dtype="float8")  # mistake
    lodestar.export.save_plain(model, "served", index="btree")  # mistake
    print(lodestar.export.verify(model, "served", {}).max_error)  # mistake
    live = lodestar.serving.LiveModel("served", "snapshots")
    live.versions()  # mistake
    live.rollback("3")  # mistake
    lodestar.serving.LiveModel("served", "b", consistency="batch")  # mistake
    lodestar.serving.openmetrics("model")  # mistake


def sequences(x: LoDTensor, ids: tf.RaggedTensor) -> None:
    lodestar.sequence.pool(x, "average")  # mistake
    lodestar.sequence.softmax(x, levels=0)  # mistake
    print(lodestar.sequence.pad(x).shape)  # mistake
    x.to_lists()  # mistake
    print(x.to_padded().shape)  # mistake
    LoDTensor.from_offsets(ids, [[0, 1]], order="inner")  # mistake
    LoDTensor([1, 2], lods=[[0, 2]])  # mistake


def lookups_and_other_tools(words: tf.Tensor) -> None:
    table = lodestar.lookup.IdTable(["a", "b"], default_valu=1)  # mistake
    lodestar.lookup.IdTableWithHashBuckets(table, 9, hasher="md5")  # mistake
    lodestar.lookup.IdTableWithHashBuckets(["a"], 9)  # mistake
    table.find(words)  # mistake
    lodestar.testing.LocalCluster(ps="2")  # mistake
    open_dataset("a", "b", format="norm", key_type="int")  # mistake
    open_dataset("a", "b", format="multislot", mode="memory")  # mistake
    open_dataset("a", "b", format="raw", layout="ints")  # mistake
    lodestar.hugectr.from_csr([0, 1], [7], order="slots")  # mistake
    lodestar.paddle.InMemoryDataset("b", 8, on_error="ignore")  # mistake
    lodestar.paddle.InMemoryDataset("b", 8, prefech=2)  # mistake
    lodestar.paddle.SelectedRows([1], [[2.0]], 3).to_tensor()  # mistake
