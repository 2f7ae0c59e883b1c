"""Exports served by processes that have only the op library."""

import export_models
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export import signatures

# Without the package: TensorFlow, the shared object and the folder.
_CHILD = """
import json, sys
import numpy as np, tensorflow as tf
library, path, source, target = sys.argv[1:]
tf.load_op_library(library)
loaded = tf.saved_model.load(path)
assert "lodestar" not in sys.modules
given = np.load(source, allow_pickle=True)
results = {}
for name, function in loaded.signatures.items():
    specs = function.structured_input_signature[1]
    x = {
        n: tf.constant(given[f"{name}/{n}"].tolist(), s.dtype)
        for n, s in specs.items()
    }
    for _ in range(2):
        for output, value in function(**x).items():
            results.setdefault(f"{name}/{output}", []).append(value.numpy())
document = json.load(tf.io.gfile.GFile(path + "/features.json"))
for table in document["tables"]:
    assert loaded.tables[table["key"]].resource_handle.dtype == tf.resource
for said, variable in zip(document["model_variables"], loaded.model_variables):
    assert list(variable.shape) == said["shape"], said
np.savez(target, **results)
"""


def array(tensor):
    """Converts a tensor to an array that np.savez can store."""
    if tensor.dtype == tf.string:
        return np.array(tensor.numpy().tolist(), object)
    return tensor.numpy()


# The arguments of signatures differ by plain TensorFlow ops only.
@pytest.mark.parametrize("signature", ["ragged", "examples"])
def test_served_scores_are_the_models(signature, tmp_path, fresh_process):
    m = export_models.shared_collection_model()
    x = export_models.collection_inputs()
    # Ids and words that training has not seen.
    x["author"] = tf.constant([3, 400, 5], tf.int64)
    x["items"] = tf.ragged.constant([["a"], ["b", "unseen"], []])
    path = export_models.exported_collection(signature)
    plain = signatures.plain_tensors(
        signatures.model_inputs(m).specs, signature
    )
    words = m.get_layer("words")(x["items"])
    given = {f"serving_default/{k}": v for k, v in plain.flatten(x).items()}
    for name, rows in m.get_layer("embed")({**x, "items": words}).items():
        given[f"from_rows/{name}"] = rows
    given["from_rows/age"] = x["age"]
    source, target = str(tmp_path / "x.npz"), str(tmp_path / "y.npz")
    np.savez(source, **{k: array(v) for k, v in given.items()})
    library = lodestar._library._find()
    fresh_process.run(_CHILD, library, path, source, target)
    got = np.load(target)
    for name, want in m(x).items():
        for kind in ("serving_default", "from_rows"):
            first, again = got[f"{kind}/{name}"]
            np.testing.assert_array_equal(first, again)
            np.testing.assert_allclose(first, want, rtol=1e-5, atol=1e-6)
