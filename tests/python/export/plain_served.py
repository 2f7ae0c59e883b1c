"""Serves plain exports, in this process and without Lodestar."""

import atexit
import functools
import os

import numpy as np
import tensorflow as tf
from processes import without_lodestar
from tensorflow.core.protobuf import saved_model_pb2

# Both loaders share a process, because each takes seconds to start.
_CHILD = """
import importlib.util, sys
assert importlib.util.find_spec("lodestar") is None
import numpy as np, tensorflow as tf
_, path, source, out = sys.argv
x = dict(np.load(source))
loaded = tf.saved_model.load(path)
served = loaded.signatures["serving_default"]
scores = served(**{k: tf.constant(v) for k, v in x.items()})
got = {f"v2_{k}": v for k, v in scores.items()}
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
    signature = meta.signature_def["serving_default"]
    feed = {signature.inputs[k].name: v for k, v in x.items()}
    fetch = {f"v1_{k}": v.name for k, v in signature.outputs.items()}
    session.run(fetch, feed)
    got.update(session.run(fetch, feed))
np.savez(out, **got)
"""


@functools.cache
def process():
    """Returns the process without Lodestar that tests share."""
    started = without_lodestar()
    atexit.register(started.close)
    return started


def serve_elsewhere(path, plain, folder):
    """Returns {name: (the TF2 loader's scores, the TF1 loader's)}, without Lodestar."""
    source, out = str(folder / "x.npz"), str(folder / "out.npz")
    arrays = {k: np.array(v) for k, v in plain.items()}
    for name, array in arrays.items():
        if array.dtype == object:
            arrays[name] = array.astype(np.bytes_)
    np.savez(source, **arrays)
    process().run(_CHILD, path, source, out)
    got = dict(np.load(out))
    names = [k.removeprefix("v2_") for k in got if k.startswith("v2_")]
    return {k: (got[f"v2_{k}"], got[f"v1_{k}"]) for k in names}


def ops_of(path):
    """Returns the names of all ops in the SavedModel."""
    with open(os.path.join(path, "saved_model.pb"), "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    ops = set()
    for meta in saved.meta_graphs:
        ops |= {node.op for node in meta.graph_def.node}
        ops |= {op.name for op in meta.meta_info_def.stripped_op_list.op}
        for function in meta.graph_def.library.function:
            ops |= {node.op for node in function.node_def}
    return ops


def load(path):
    """Loads a folder, and checks that it has only plain ops."""
    ops = ops_of(path)
    assert not [op for op in ops if "Lodestar" in op]
    assert not [op for op in ops if "DenseHashTable" in op]
    return tf.saved_model.load(str(path))
