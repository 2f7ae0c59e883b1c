"""Tests that exported models do not modify tables."""

import pathlib

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

layers = lodestar.layers


def serving_nodes(path):
    """Returns the nodes that serving runs, with functions, without save and load.

    They come from the file itself, as another runtime reads it.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(path) / "saved_model.pb").read_bytes()
    )
    (meta,) = proto.meta_graphs
    functions = {f.signature.name: f for f in meta.graph_def.library.function}
    waiting = [
        name
        for name in functions
        if name.startswith("__inference_")
        and any(
            kind in name for kind in ("serve", "signature_wrapper", "from_rows")
        )
    ]
    assert waiting
    seen, nodes = set(waiting), []
    for name in waiting:
        for node in functions[name].node_def:
            nodes.append(node)
            for attr in node.attr.values():
                for called in (attr.func, *attr.list.func):
                    if called.name and called.name not in seen:
                        seen.add(called.name)
                        waiting.append(called.name)
    return nodes


def writes(node):
    """Returns whether a lookup adds ids, which is the op's default."""
    if node.op == "Lodestar>IdTableFind":
        return False
    return any(
        name not in node.attr or node.attr[name].b
        for name in ("insert", "count")
    )


def one_table(**options):
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    pooled = layers.DynamicEmbedding(2, combiner="sum", **options)
    single = layers.DynamicEmbedding(2, **options)
    flat = keras.Input((2,), dtype="int64", name="y")
    return keras.Model(
        {"x": ids, "y": flat}, {"x": pooled(ids), "y": single(flat)}
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"default_row": "initial"},
        {"default_row": [1.0, 2.0]},
        {"default_row": lodestar.SharedRows(3)},
        {"admission": lodestar.MinCount(2), "default_row": "initial"},
        {"eviction": lodestar.MaxRows(2), "default_row": "initial"},
    ],
    ids=str,
)
def test_a_served_lookup_never_writes_and_never_varies(options, tmp_path):
    m = one_table(**options)
    x = {
        "x": tf.ragged.constant([[1, 2], [3], []], tf.int64),
        "y": tf.constant([[1, 2], [1, 1], [4, 5]], tf.int64),
    }
    m(x, training=True)
    path = str(tmp_path / "s")
    lodestar.export.save(m, path)
    loaded = tf.saved_model.load(path)
    tables = [t.resource_handle for t in loaded.tables.values()]
    size = lodestar._library.gen_ops.lodestar_embedding_size
    before = [int(size(t)) for t in tables]
    unseen = {
        "x": tf.ragged.constant([[1, 100], [-3], [7]], tf.int64),
        "y": tf.constant([[1, 200], [-1, 1], [4, 9]], tf.int64),
    }
    first = loaded.serve(unseen)
    for _ in range(3):
        again = loaded.serve(unseen)
        for name, want in m(unseen).items():
            np.testing.assert_array_equal(again[name], first[name])
            np.testing.assert_array_equal(first[name], want)
    assert [int(size(t)) for t in tables] == before


@pytest.mark.parametrize("signature", export_models.SIGNATURES)
def test_no_op_of_the_file_writes(signature):
    nodes = serving_nodes(export_models.exported_collection(signature))
    ours = [node for node in nodes if node.op.startswith("Lodestar>")]
    assert {node.op for node in ours} == {
        "Lodestar>EmbeddingCollectionLookup",
        "Lodestar>IdTableFind",
    }
    assert not any(writes(node) for node in ours)


def test_the_test_sees_an_op_that_writes(tmp_path):
    m = export_models.ragged_model()
    module = tf.Module()
    module.table = m.get_layer("embed").table
    module.serve = tf.function(
        lambda ids: module.table.lookup(ids, training=True),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, str(tmp_path / "s"))
    (node,) = [
        node
        for node in serving_nodes(tmp_path / "s")
        if node.op.startswith("Lodestar>")
    ]
    assert writes(node)


class Trains(keras.Model):
    def __init__(self, embed):
        super().__init__()
        self.embed = embed

    def call(self, ids):
        return self.embed({"f": ids}, training=True)


class Writes(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = lodestar.EmbeddingVariable(1, name="t")

    @tf.function
    def forget(self, ids):
        return self.table.remove(ids)

    def call(self, ids):
        return {"removed": self.forget(ids)}


@pytest.mark.parametrize(
    "make, op",
    [
        (
            lambda: Trains(
                layers.EmbeddingCollection(
                    {"f": lodestar.Feature(lodestar.EmbeddingVariable(1))}
                )
            ),
            "EmbeddingCollectionLookup",
        ),
        (Writes, "EmbeddingRemove"),
    ],
)
def test_a_model_that_writes_is_refused(make, op, tmp_path):
    m = make()
    ids = tf.TensorSpec([None], tf.int64)
    with pytest.raises(
        ValueError,
        match=f"`model` called with training=False has the op .*{op}, which ch",
    ):
        lodestar.export.save(m, tmp_path / "s", inputs={"ids": ids})
    assert not (tmp_path / "s").exists()
