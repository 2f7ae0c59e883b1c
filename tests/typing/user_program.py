"""A user's program without mistakes for the type checker; it is never run."""

import datetime
from typing import Any, assert_type

import keras
import numpy as np
import tensorflow as tf

import lodestar
from lodestar.callbacks import EarlyStopping, Evict, Snapshot, TableStats
from lodestar.data import Column, Schema, open_dataset, open_writer
from lodestar.layers import DynamicEmbedding, EmbeddingCollection, IdLookup
from lodestar.lookup import IdTable, IdTableWithHashBuckets
from lodestar.ragged import LoDTensor
from lodestar.snapshot.copying import CopyReport
from lodestar.snapshot.info import SnapshotInfo
from lodestar.snapshot.saving import PendingSnapshot


def tables(ids: tf.RaggedTensor, return_rows: bool) -> None:
    table = lodestar.EmbeddingVariable(
        8,
        embeddings_initializer=keras.initializers.RandomNormal(),
        admission=lodestar.MinCount(2, unit="occurrence"),
        eviction=[lodestar.MaxRows(1000, policy="lfu"), lodestar.MaxAge(9)],
        default_row="initial",
        dtype="float16",
        rounding="stochastic",
        optimizer=keras.optimizers.Adagrad(0.1),
        on_evict=lambda ids, rows: print(ids.shape, rows.shape),
    )
    assert_type(table, lodestar.EmbeddingVariable)
    assert_type(table.output_dim, int)
    lodestar.EmbeddingVariable(
        8, default_row=lodestar.SharedRows(9), optimizer="adagrad"
    )
    print(table.lookup(ids, training=True, combiner="sqrtn").shape)
    rows, found = table.find(ids)
    table.insert_or_assign([1, 2], np.zeros([2, 8]))
    print(int(table.size()), table.shape, table.trainable, table + 1)
    table.trainable = False
    table.evict(lodestar.MinNorm(0.1)).numpy()
    evicted, _ = table.evict(return_rows=True)
    table.evict(return_rows=return_rows)
    content = table.export()
    assert_type(content, lodestar.EmbeddingRows)
    table.load_rows(content._replace(frequencies=None), mode="merge")
    print(table.stats()["rows"], lodestar.hash_ids(["a"], column="user"))
    lodestar.warm_start.from_embedding(
        table, keras.layers.Embedding(9, 8), existing="keep"
    )
    lodestar.CountingBloom(3, false_positive_rate=0.1, expected_ids=1000)


class Tower(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = DynamicEmbedding(8, combiner="mean", trainable=False)

    def call(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return tf.nn.relu(self.embedding(ids))


class Ranker(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.tower = Tower()

    def call(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self.tower(ids)


class SignSGD(keras.optimizers.Optimizer):
    def update_step(self, gradient: Any, variable: Any, rate: Any) -> None:
        self.assign_sub(variable, keras.ops.sign(gradient) * rate)


class Printer(Evict):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        print(self.model.name)


class Weighted(DynamicEmbedding):
    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight((), "ones", name="scale")

    def call(self, ids: Any, weights: Any = None, training: Any = None) -> Any:
        return super().call(ids, weights, training) * self.scale


def layers(ids: tf.RaggedTensor) -> None:
    layer = DynamicEmbedding(
        8, combiner="mean", eviction=lodestar.MinFrequency(2), dtype="float16"
    )
    assert_type(layer.table, lodestar.EmbeddingVariable)
    assert_type(layer.output_dim, int)
    assert_type(layer.trainable, bool)
    print(layer(ids).shape, layer.weights, layer.name, layer.count_params())
    print(Tower().embedding.table.size(), Weighted(8).get_config()["combiner"])
    keras.Sequential([layer, keras.layers.Dense(1)]).compile("adam")
    shared = lodestar.EmbeddingVariable(8)
    collection = EmbeddingCollection(
        {
            "user": 16,
            "item": lodestar.Feature(shared, "mean", salt="item"),
            "brand": lodestar.Feature(output_dim=4, max_length=9),
        },
        name="ids",
    )
    print(collection({"user": ids})["user"].shape)
    assert_type(collection.features["brand"].table, lodestar.EmbeddingVariable)
    words = IdLookup(["a", "b"], output_mode="multi_hot", name="words")
    words.adapt(np.array(["a"]))
    print(words.get_vocabulary()[0], words(np.array(["a"])).shape)
    lodestar.layers.SequenceConv(8, 3, activation="relu", dtype="float32")(ids)
    with lodestar.layers.clone_scope():
        keras.models.clone_model(Tower())


def data(folder: str, fraction: float | None) -> None:
    spec = Schema.load(f"{folder}/schema.yaml")
    assert_type(spec, Schema)
    dataset = open_dataset([f"{folder}/part-0"], spec, 512, shuffle_files=True)
    assert_type(dataset.schema, Schema)
    for features, _ in dataset.map(lambda x, y: (x, y)).take(2):
        print(features["user"].shape)
    train, test = open_dataset(
        folder, label="click", split=0.1, split_by="user", format="parquet"
    )
    assert_type(train.schema, Schema)
    test = test.batch(2)
    open_dataset(folder, split=fraction)
    open_dataset(
        folder,
        spec,
        mode="in_memory",
        on_error="skip",
        sparse="lod",
        repeat=None,
    )
    columns = [
        Column.label("click", positive="yes", negative=["no", "maybe"]),
        Column.dense("price", (2,), fill_value="error"),
        Column.sparse("user", encoding="hash", separator="|"),
        Column.sparse("time", unit="s"),
        Column.one_hot("day", 7),
        Column("score", "dense", dtype="float", shape=(1,)),
    ]
    assert_type(columns[0], Column)
    with open_writer("a.parquet", columns, format="parquet") as writer:
        writer.write({"click": 1, "user": [1, 2]})
    print(Schema(columns).names("sparse"), Schema(columns).inputs()["user"])
    start = datetime.date(2026, 1, 1)
    lodestar.data.files_by_day("%Y", start, "2026-01-02", on_missing="skip")
    counts = lodestar.data.SkippedRecords()
    open_dataset(folder, on_error="skip", skipped=counts)
    print(counts.count + 1, counts.messages[0])


def training(model: keras.Model, data: tf.data.Dataset) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    adam = lodestar.optimizers.Adam(schedule, 0.9, clipnorm=1.0, name="a")
    print(adam.beta_1 + 1, adam.iterations, adam.learning_rate, adam.name)
    model.compile(adam, "mse", metrics=[lodestar.metrics.BatchAUC()])
    lodestar.optimizers.SGD(0.1, momentum=0.9, nonfinite="skip")
    lodestar.optimizers.AdamW(1e-3, 1e-4, gradient_accumulation_steps=2)
    lodestar.optimizers.RowWiseAdagrad(0.1, initial_accumulator_value=0.0)
    lodestar.optimizers.wrap(keras.optimizers.Adam(0.1), nonfinite="pass")
    snapshots = Snapshot("snapshots", 1000, keep=3, on_error="warn")
    history = lodestar.train.fit(
        model,
        data,
        epochs=2,
        verbose=0,
        snapshots=snapshots,
        callbacks=[
            Evict(lodestar.MaxAge(3), "epoch"),
            TableStats("logs", update_freq=100, logs=["rows"]),
            EarlyStopping(patience=2, mode="max", restore_best_weights=True),
            lodestar.callbacks.TensorBoard("logs", embeddings_freq=1),
        ],
    )
    print(history.history["loss"])
    lodestar.train.fit(
        Ranker(), data, callbacks=[Printer(lodestar.MaxAge(3))], verbose=0
    )
    lodestar.EmbeddingVariable(8, optimizer=SignSGD(0.1))
    lodestar.optimizers.wrap(SignSGD(0.1))
    snapshots.restore(model, on_missing="init")
    print(lodestar.train.evaluate(model, data, steps=9)["loss"] + 1)
    metric = lodestar.metrics.BatchAUC(slide_steps=20)
    metric.update_state([0, 1], [0.1, 0.8])
    print(float(metric.result()), metric.name)


def snapshots(
    folder: str,
    table: lodestar.EmbeddingVariable,
    model: keras.Model,
    module: tf.Module,
    blocking: bool,
) -> None:
    contents = {"table": table}
    info = lodestar.snapshot.save(contents, folder, delta=True)
    assert_type(info, SnapshotInfo)
    pending = lodestar.snapshot.save(table, folder, blocking=False)
    assert_type(pending.wait(), SnapshotInfo)
    assert_type(
        lodestar.snapshot.save(table, folder, blocking=blocking),
        SnapshotInfo | PendingSnapshot,
    )
    assert_type(lodestar.snapshot.save(model, folder).step, int)
    copying = lodestar.snapshot.copy(folder, "gs://bucket/a", blocking=False)
    assert_type(copying.wait(), CopyReport)
    report = lodestar.snapshot.restore(contents, folder, on_extra="ignore")
    assert_type(report.dense, dict[str, np.ndarray])
    lodestar.snapshot.restore([table], folder)
    lodestar.snapshot.restore(DynamicEmbedding(8), folder)
    lodestar.snapshot.restore(module, folder, optimizer_slots="reset")
    lodestar.snapshot.restore(Tower(), folder, version=3)
    lodestar.snapshot.restore(model, folder, step=3)
    newest = lodestar.snapshot.versions(folder)[-1]
    print(newest.rows + newest.tables["user"].dim, newest.kind)
    print(lodestar.snapshot.compact(folder, keep=3).removed)
    print(lodestar.snapshot.copy(folder, "b").copied)


def serving(model: keras.Model, folder: str) -> None:
    lodestar.export.save(
        model, folder, "padded", padding_id={"user": 0}, dtype="int8"
    )
    lodestar.export.save_plain(model, folder, tables="all", index="sorted")
    found = lodestar.export.verify(model, folder, {"user": [[1]]})
    assert_type(found.max_difference, float)
    with lodestar.serving.LiveModel(folder, "b", consistency="row") as live:
        live({"user": [1]})["output"].numpy()
        print(live.version(), live.stats()["version"])
        lodestar.serving.openmetrics(live)
    lodestar.serving.openmetrics(tf.saved_model.load(folder))
    lodestar.serving.openmetrics({"hits": {"user": 3}})


def sequences(x: LoDTensor, ids: tf.RaggedTensor) -> None:
    assert_type(lodestar.sequence.softmax(x), LoDTensor)
    assert_type(x.num_levels, int)
    print((x == x), x.values.shape, x.lod[0], x.to_list())
    padded, lengths = lodestar.sequence.pad(x, maxlen=3)
    lodestar.sequence.unpad(padded, lengths).to_list()
    assert_type(lodestar.sequence.unpad(padded, lengths, like=x), LoDTensor)
    rows, index = lodestar.sequence.pool(x, "max", with_index=True)
    lodestar.sequence.pool(ids, "mean", pad_value=1.0).numpy()
    lodestar.sequence.pool(x, level=0).to_ragged()
    LoDTensor.from_offsets([1, 2], [[0, 2]], order="inner_first")
    print(LoDTensor([1, 2], [[0, 2]]).to_padded()[0].shape)


def lookups_and_other_tools(words: tf.Tensor) -> None:
    table = IdTable.from_file("words.txt")
    assert_type(table, IdTable)
    print(table.lookup(np.array(["a"])), table.size(), table.resource_handle)
    IdTableWithHashBuckets(table, 10, hasher="strong").lookup(["a"])
    IdTable(words, mutable=True).insert(["c"], [3])
    with lodestar.testing.LocalCluster(ps=2, workers=1) as cluster:
        print(cluster.resolver)
    open_dataset("a", "b", format="norm", key_type="int64", check="none")
    open_dataset("a", "b", format="raw", layout="int", nnz_per_slot=[1, 2])
    slots = lodestar.hugectr.from_csr([0, 1], [7], order="slot_major")
    print(lodestar.hugectr.to_csr(slots)[0].shape)
    lodestar.paddle.InMemoryDataset("b", 8, on_error="skip").release()
    lodestar.paddle.SelectedRows([1], [[2.0]], 3).to_dense()
