"""lodestar.data.slot_layout: the tensors that represent sparse slots."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema
from lodestar.data.schema_layout import SchemaLayout
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema(
    [
        Column.label("click"),
        Column.sparse("C1"),
        Column.dense("I", (2,)),
        Column.sparse("w", dtype="float"),
        Column.sparse("C2"),
        Column.one_hot("day", 3),
    ]
)
ROWS = [
    ([7, 8], [0.5], [9]),
    ([], [], []),
    ([1], [2.0, 3.0], [2, 3, 4]),
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    text = ""
    for i, (c1, w, c2) in enumerate(ROWS):
        c1, w, c2 = (
            " ".join(map(str, [len(ids), *ids])) for ids in (c1, w, c2)
        )
        text += f"1 {i % 2} {c1} 2 {i} 0.5 {w} {c2} 1 {i}\n"
    path.write_text(text)
    return path


def test_ragged_is_the_default(file):
    ((features, _),) = MultiSlotDataset(file, SPEC, 8)
    assert list(features) == ["C1", "I", "w", "C2", "day"]
    for name, column in zip(("C1", "w", "C2"), zip(*ROWS)):
        assert isinstance(features[name], tf.RaggedTensor)
        assert features[name].to_list() == list(column)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_lod(file, batch_size):
    dataset = MultiSlotDataset(file, SPEC, batch_size, sparse="lod")
    rows = {"C1": [], "w": [], "C2": []}
    for features, _ in dataset:
        for name, column in rows.items():
            assert isinstance(features[name], lodestar.ragged.LoDTensor)
            column += features[name].to_list()
    assert list(zip(*rows.values())) == ROWS


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_csr_has_the_slots_of_a_sample_side_by_side(
    file, batch_size, drop_remainder
):
    dataset = MultiSlotDataset(
        file, SPEC, batch_size, sparse="csr", drop_remainder=drop_remainder
    )
    spec = dataset.element_spec[0]
    assert set(spec) == {"I", "w", "day", "csr"}
    offsets = 2 * batch_size + 1 if drop_remainder else None
    assert spec["csr"]["row_offsets"] == tf.TensorSpec([offsets], tf.int64)
    assert spec["csr"]["values"] == tf.TensorSpec([None], tf.int64)
    got = []
    for features, _ in dataset:
        csr = features["csr"]
        ids = tf.RaggedTensor.from_row_splits(csr["values"], csr["row_offsets"])
        got += ids.to_list()
        assert isinstance(features["w"], tf.RaggedTensor)
    kept = len(ROWS) // batch_size * batch_size if drop_remainder else None
    want = [ids for c1, _, c2 in ROWS[:kept] for ids in (c1, c2)]
    assert got == want


def test_csr_of_one_slot_named_csr():
    spec = Schema([Column.sparse("csr")])
    layout = SchemaLayout(spec, sparse="csr")
    values, splits = tf.constant([5, 6], tf.int64), tf.constant([0, 0, 2])
    features = layout.features_and_label(values, tf.cast(splits, tf.int64))
    assert features["csr"]["values"].numpy().tolist() == [5, 6]
    assert features["csr"]["row_offsets"].numpy().tolist() == [0, 0, 2]


def test_unsupported_layouts_are_refused(file):
    with pytest.raises(ValueError, match="`sparse`='coo' is not in"):
        MultiSlotDataset(file, SPEC, 8, sparse="coo")
    beside = Schema([Column.sparse("C1"), Column.dense("csr")])
    with pytest.raises(ValueError, match="'csr', but .* the kind 'dense'"):
        MultiSlotDataset(file, beside, 8, sparse="csr")
    weights = Schema([Column.sparse("csr", dtype="float"), Column.sparse("C1")])
    with pytest.raises(ValueError, match="'csr', but .* the kind 'spars"):
        MultiSlotDataset(file, weights, 8, sparse="csr")
    floats = Schema([Column.sparse("w", dtype="float"), Column.dense("I")])
    with pytest.raises(ValueError, match="needs a sparse slot of ids"):
        MultiSlotDataset(file, floats, 8, sparse="csr")


@keras.saving.register_keras_serializable("slot_layout_test")
class SumOfIds(keras.layers.Layer):
    """Sums each sample's ids in both slots, for every kind of tensor."""

    def call(self, features):
        if "csr" in features:
            csr = features["csr"]
            ids = tf.RaggedTensor.from_row_splits(
                csr["values"], csr["row_offsets"]
            )
            sums = tf.reduce_sum(tf.cast(ids, tf.float32), axis=1)
            sums = tf.reduce_sum(tf.reshape(sums, [-1, 2]), 1, keepdims=True)
            return sums
        return tf.add_n(
            tf.reduce_sum(tf.cast(features[name], tf.float32), 1, keepdims=True)
            for name in ("C1", "C2")
        )


@pytest.mark.parametrize("sparse", ["ragged", "csr"])
def test_fit(file, sparse):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.sums = SumOfIds()
            self.dense = keras.layers.Dense(1, activation="sigmoid")

        def call(self, features):
            inputs = [self.sums(features), features["I"], features["day"]]
            return self.dense(tf.concat(inputs, axis=1))

    dataset = MultiSlotDataset(file, SPEC, 2, sparse=sparse)
    model = Model()
    model.compile(loss="binary_crossentropy", optimizer="sgd")
    history = model.fit(dataset, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert model.evaluate(dataset, verbose=0) > 0
    assert model.predict(dataset, verbose=0).shape == (3, 1)


def test_fit_of_a_functional_model(file):
    inputs = {
        "csr": {
            "row_offsets": keras.Input([], dtype="int64"),
            "values": keras.Input([], dtype="int64"),
        }
    }
    sums = keras.layers.Reshape([1])(SumOfIds()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(sums))
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(1e-6))
    dataset = MultiSlotDataset(file, SPEC, 2, sparse="csr").map(
        lambda x, y: ({"csr": x["csr"]}, y)
    )
    history = model.fit(dataset, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_fields_come_before_the_slots():
    spec = Schema([Column.sparse("C1"), Column.label("click")])
    layout = SchemaLayout(spec, fields=["ins_id", "logkey"], rows=2)
    assert [t.dtype for t in layout.tensor_specs[:4]] == [
        tf.string,
        tf.int64,
        tf.int64,
        tf.int64,
    ]
    assert layout.tensor_specs[0].shape == [2]
    features, label = layout.features_and_label(
        tf.constant(["a", "b"]),
        tf.constant([1, 2], tf.int64),
        tf.constant([3, 4], tf.int64),
        tf.constant([5, 6], tf.int64),
        tf.constant([7], tf.int64),
        tf.constant([0, 0, 1], tf.int64),
        tf.constant([[0], [1]], tf.int64),
    )
    assert list(features) == ["ins_id", "search_id", "cmatch", "rank", "C1"]
    assert features["rank"].numpy().tolist() == [5, 6]
    assert features["C1"].to_list() == [[], [7]]
    assert label.numpy().tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("number", [2**24 + 1, -(2**24) - 1, 2**63 - 1])
def test_integer_labels_that_float32_does_not_hold(number):
    for column in (
        Column.label("y", binary=False),
        Column.label("y", binary=False, rounded=True),
    ):
        layout = SchemaLayout(Schema([column, Column.dense("x")]))
        label = tf.function(layout.features_and_label, autograph=False)
        held = tf.constant([[2**24], [-(2**63)], [2**62]], tf.int64)
        _, found = label(held, tf.zeros([3, 1]))
        assert found.numpy().tolist() == held.numpy().tolist()
        if column.rounded:
            label(tf.constant([[number]], tf.int64), tf.zeros([1, 1]))
            continue
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="Labels of .* must be integers that float32 holds",
        ):
            label(tf.constant([[number]], tf.int64), tf.zeros([1, 1]))
