"""Exported models in fresh processes with TensorFlow and the op library only.

The package cannot be imported there, so serving does not depend on it.
"""

import numpy as np
import pytest
import tensorflow as tf
from processes import without_lodestar
from served_models import (
    assert_same_outputs,
    batch,
    op_library,
    plain,
    trained_model,
)

import lodestar

_START = """
import sys
import numpy as np, tensorflow as tf
tf.load_op_library(sys.argv[1])
path, *sources = sys.argv[2:]
batches = [(dict(np.load(source)), source + ".scores") for source in sources]
"""

_TF2 = (
    _START
    + """
loaded = tf.saved_model.load(path)
serve = loaded.signatures["serving_default"]
for features, out in batches:
    scores = serve(**{k: tf.constant(v) for k, v in features.items()})
    np.savez(open(out, "wb"), **{k: v.numpy() for k, v in scores.items()})
"""
)

# What TensorFlow Serving does.
_V1 = (
    _START
    + """
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
    signature = meta.signature_def["serving_default"]
    fetch = {k: v.name for k, v in signature.outputs.items()}
    for features, out in batches:
        feed = {signature.inputs[k].name: v for k, v in features.items()}
        np.savez(open(out, "wb"), **session.run(fetch, feed))
"""
)


@pytest.fixture(scope="module")
def model():
    return trained_model()


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Starts a process, which loads the op library as each script does."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with without_lodestar(cwd=folder) as process:
        yield process


@pytest.mark.parametrize(
    "signature, script",
    [("ragged", _V1), ("values_and_lengths", _TF2)],
    ids=["v1", "tf2"],
)
def test_scores_are_the_models(model, signature, script, process, tmp_path):
    lodestar.export.save(model, tmp_path / "model", signature)
    cases = {}
    for size in (100, 0, 1):
        features = batch(size, size)
        source = f"{tmp_path}/{size}.npz"
        np.savez(source, **plain(features, signature))
        cases[source] = model(features, training=False)
    process.run(script, op_library(), tmp_path / "model", *cases)
    for source, want in cases.items():
        assert_same_outputs(dict(np.load(f"{source}.scores")), want)


def test_without_the_op_library_the_error_names_an_op(model, tmp_path):
    lodestar.export.save(model, tmp_path / "model")
    with without_lodestar(cwd=tmp_path) as process:
        process.run(
            """
import sys
import tensorflow as tf
try:
    tf.saved_model.load(sys.argv[1])
except Exception as error:
    assert "Op type not registered 'Lodestar>" in str(error), error
else:
    raise AssertionError("loaded")
""",
            tmp_path / "model",
        )


def test_the_model_is_built_of_our_ops(model, tmp_path):
    # Otherwise the tests above would prove nothing.
    lodestar.export.save(model, tmp_path / "model")
    graph = tf.saved_model.load(str(tmp_path / "model")).signatures[
        "serving_default"
    ]
    ops = {
        node.op
        for function in graph.graph.as_graph_def().library.function
        for node in function.node_def
    }
    assert "Lodestar>EmbeddingCollectionLookup" in ops
