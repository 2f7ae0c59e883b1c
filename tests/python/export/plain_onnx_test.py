"""Plain TensorFlow exports that tf2onnx converts.

The tests do not need tf2onnx. Its release 1.17 converted exports of these ops
for onnxruntime, which returned the models' scores.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers
from lodestar.export.plain.graph_check import all_nodes
from lodestar.export.plain.id_index import IdIndex

CONVERTED = {
    *("AddV2", "All", "Cast", "ConcatV2", "Const", "Cumsum", "DenseBincount"),
    *("DivNoNan", "EnsureShape", "Equal", "Fill", "GatherV2", "Greater"),
    *("GreaterEqual", "Identity", "Less", "LessEqual", "LogicalAnd"),
    *("MatMul", "Max", "Maximum", "Minimum", "Mul", "NotEqual", "OnesLike"),
    *("Pack", "Placeholder", "Prod", "Range", "RealDiv", "Reshape"),
    *("SelectV2", "Shape", "Size", "Sqrt", "StridedSlice", "Sub"),
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentSum"),
    "ZerosLike",
    # Variables become constants, and calls are inlined.
    *("ReadVariableOp", "ResourceGather", "StatefulPartitionedCall"),
    # Checks are removed.
    *("Assert", "If", "NoOp"),
}
# tf2onnx converts these for floats only.
FLOATS_ONLY = {"UnsortedSegmentMax", "UnsortedSegmentMin"}


def bags(**options):
    return layers.DynamicEmbedding(4, **options)


def collection(ids):
    feature = lodestar.Feature(output_dim=4, combiner="sum", padding_id=0)
    return layers.EmbeddingCollection({"ids": feature})({"ids": ids})["ids"]


def pooled(ids):
    return lodestar.sequence.pool(bags()(ids), "mean")


# From ids to rows.
DENSE_FRONTS = {
    "sqrtn": bags(combiner="sqrtn"),
    "first": bags(combiner="first"),
    "padding": bags(combiner="mean", padding_id=3, default_id=7),
    "rows": lambda ids: keras.layers.Flatten()(bags()(ids)),
    "id_lookup": layers.IdLookup([1, 2, 3], output_mode="count"),
}
RAGGED_FRONTS = {
    "max": bags(combiner="max"),
    "last": bags(combiner="last", default_row=[1.0, 2.0, 3.0, 4.0]),
    "collection": collection,
    "pool": pooled,
}


def nodes_of(fronts, path, *, ragged, dtype):
    """Exports a model around `fronts`; returns the nodes of its signature."""
    shape = (None,) if ragged else (3,)
    ids = keras.Input(shape, dtype="int64", ragged=ragged, name="ids")
    outputs = {
        name: keras.layers.Dense(1)(front(ids))
        for name, front in fronts.items()
    }
    model = keras.Model(ids, outputs)
    batch = tf.constant([[1, 2, 9], [3, 2, 4]], tf.int64)
    if ragged:
        batch = tf.RaggedTensor.from_tensor(batch)
    with tf.GradientTape():  # each id gets a row
        model(batch)
    lodestar.export.save_plain(model, path, dtype=dtype, index="sorted")
    served = tf.saved_model.load(path).signatures["serving_default"]
    return list(all_nodes(served.graph))


@pytest.mark.parametrize(
    ("fronts", "ragged", "dtype"),
    [(DENSE_FRONTS, False, None), (RAGGED_FRONTS, True, "int8")],
    ids=["dense", "ragged"],
)
def test_ops_of_an_export_are_those_that_are_converted(
    fronts, ragged, dtype, tmp_path
):
    path = str(tmp_path / "export")
    nodes = nodes_of(fronts, path, ragged=ragged, dtype=dtype)
    assert {node.op for node in nodes} <= CONVERTED
    for node in nodes:
        if node.op in FLOATS_ONLY:
            assert tf.as_dtype(node.attr["T"].type).is_floating


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 1000])
def test_sorted_search(size):
    random = np.random.default_rng(size)
    limits = np.iinfo(np.int64)
    keys = random.integers(limits.min, limits.max, size - 1, endpoint=True)
    keys = np.unique([*keys, limits.max if size % 2 else limits.min])
    index = IdIndex(tf.constant(keys), "sorted")
    missing = [0, -1, limits.min, limits.max, *(keys - 1), *(keys[:-1] + 1)]
    wanted = np.concatenate([keys, np.asarray(missing, np.int64)])
    places = {int(key): place for place, key in enumerate(keys)}
    found = tf.function(index.find)(tf.constant(wanted))
    assert found.numpy().tolist() == [places.get(int(k), -1) for k in wanted]
