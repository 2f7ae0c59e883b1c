"""Schema.inputs: what a model takes of what datasets of slots give."""

import keras

from lodestar.data import Column, Schema
from lodestar.paddle import MultiSlotDataset

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", [2]),
        Column.dense("count", dtype="uint64"),
        Column.sparse("a/b"),
        Column.sparse("weight", dtype="float"),
        Column.one_hot("day", 7),
        Column.sparse("aside", used=False),
    ]
)


def test_inputs_are_as_the_dataset_gives_them(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text("1 1 2 0.5 3 1 7 2 8 9 2 1.5 2 1 6 0\n")
    features, _ = MultiSlotDataset(path, SPEC, 1).element_spec
    inputs = SPEC.inputs()
    assert list(inputs) == ["a/b", "weight", "I", "count", "day"]
    assert set(inputs) == set(features)
    for name, tensor in inputs.items():
        assert tensor.shape == tuple(features[name].shape)
        assert tensor.dtype == features[name].dtype.name
        assert tensor.ragged == (name in ("a/b", "weight"))
    model = keras.Model(inputs, inputs["I"])
    for batch, _ in MultiSlotDataset(path, SPEC, 1):
        assert model(batch).numpy().tolist() == [[0.5, 3.0]]


def test_slots_of_these_inputs_are_the_slots():
    schema = Schema(
        [
            Column.label("click"),
            Column.sparse("C"),
            Column.dense("I", [-1, 2]),
        ]
    )
    inputs = schema.inputs()
    assert inputs["I"].shape == (None, None, 2)
    assert Schema.from_inputs(list(inputs.values()), "click") == schema
