"""A model that is trained and saved, for tests that follow its snapshots."""

import os
import pathlib
import shutil
import tempfile
import time
import unittest.mock

import keras
import numpy as np
import tensorflow as tf

import lodestar
from lodestar.export.follow import readable_stats

# Options of an export -> its folder and its weights. An export takes as long
# as most tests.
_exports = {}


class Trainer:
    """Trains a small model, exported before its first step.

    Args:
        folder: Contains the export and the snapshots.
        eviction: The eviction policy of its table.
        from_rows: Whether the export has the `from_rows` signature.
        follow: Whether the export follows the snapshots by itself, if `load`
            loads it.
        poll_seconds: `poll_seconds` of the export.
        dtype: `dtype` of the export.
    """

    def __init__(
        self,
        folder,
        eviction=None,
        from_rows=False,
        follow=False,
        poll_seconds=None,
        dtype=None,
    ):
        self.exported = pathlib.Path(folder, "model")
        self.snapshots = pathlib.Path(folder, "snapshots")
        self.table = lodestar.EmbeddingVariable(
            4, name="clicks", eviction=eviction
        )
        clicks = keras.Input((None,), dtype="int64", ragged=True, name="clicks")
        rows = lodestar.layers.DynamicEmbedding(
            table=self.table, combiner="mean"
        )(clicks)
        score = keras.layers.Dense(1)(rows)
        self.model = keras.Model(
            {"clicks": clicks}, {"score": score, "rows": rows}
        )
        self.model.compile(
            lodestar.optimizers.Adagrad(0.1),
            {"score": "mse", "rows": None},
        )
        rng = np.random.default_rng(5)
        self.ids = np.unique(rng.integers(-(2**63), 2**63 - 1, 64))
        splits = np.sort(np.append(rng.integers(0, 65, 31), [0, 64]))
        self.features = {
            "clicks": tf.RaggedTensor.from_row_splits(self.ids, splits)
        }
        self._rng = rng
        options = {"from_rows": from_rows, "dtype": dtype}
        if follow:
            options |= {"follow": "/snapshots", "poll_seconds": poll_seconds}
        self._copy_export(options, str(eviction))

    def _copy_export(self, options, eviction):
        """Copies the export of the first model, and takes its weights."""
        layer, key = self.model.layers[-1], f"{options} {eviction}"
        if key not in _exports:
            folder = tempfile.TemporaryDirectory()
            lodestar.export.save(self.model, folder.name, **options)
            _exports[key] = folder, layer.get_weights()
        folder, weights = _exports[key]
        layer.set_weights(weights)
        shutil.copytree(folder.name, self.exported)

    def train(self):
        """Trains one step on half of the ids, some of them new."""
        ids = self._rng.choice(self.ids, [8, 4], replace=False)
        features = {"clicks": tf.RaggedTensor.from_tensor(ids)}
        self.model.train_on_batch(features, {"score": self._rng.random((8, 1))})

    def save(self, delta=False, **options):
        return lodestar.snapshot.save(
            self.model, self.snapshots, delta=delta, **options
        )

    def weights(self):
        """Returns the variables for `dense` of a snapshot."""
        return {
            variable.path: variable
            for variable in self.model.weights
            if 0 not in variable.shape
        }

    def outputs(self):
        return self.model(self.features, training=False)


class Export:
    """An export that follows the snapshots of a folder by itself."""

    def __init__(self, path, snapshots):
        where = {"LODESTAR_SNAPSHOTS": str(snapshots)}
        with unittest.mock.patch.dict(os.environ, where):
            self.loaded = tf.saved_model.load(str(path))

    def __call__(self, features):
        return self.loaded.serve(features)

    @property
    def signatures(self):
        return self.loaded.signatures

    def poll(self):
        before = self.version()
        return int(self.signatures["refresh"]()["version"]) != (before or 0)

    def version(self):
        return self.stats()["version"]

    def stats(self):
        return readable_stats(self.signatures["follower_stats"]())


# An export that follows by itself, and the consistencies of a LiveModel.
SERVERS = ("export", "call", "row")


def serve(trainer, server, poll_seconds=None, **options):
    """Serves a trainer's export, with `follow` for the server "export"."""
    if server == "export":
        return Export(trainer.exported, trainer.snapshots)
    return lodestar.serving.LiveModel(
        trainer.exported,
        trainer.snapshots,
        poll_seconds,
        consistency=server,
        **options,
    )


def assert_serves(served, trainer):
    """Checks that `served` returns the outputs of the trained model."""
    want, got = trainer.outputs(), served(trainer.features)
    assert set(got) == set(want)
    np.testing.assert_array_equal(got["rows"], want["rows"])
    np.testing.assert_allclose(
        got["score"], want["score"], rtol=1e-6, atol=1e-6
    )


def table_file(snapshots, version):
    return snapshots / f"{version:08d}" / "table-00000"


def flip_byte(path):
    """Flips a byte in the middle of a file; a second call restores it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.005)
