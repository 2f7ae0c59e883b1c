"""A model that is trained and saved, for tests that follow its snapshots."""

import pathlib
import shutil
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import lodestar

# Options of an export that follows nothing -> its folder and its weights. An
# export takes as long as most tests.
_exports = {}


class Trainer:
    """Trains a small model, exported before its first step.

    Args:
        folder: Contains the export and the snapshots.
        eviction: The eviction policy of its table.
        from_rows: Whether the export has the `from_rows` signature.
        follow: Whether the export follows the snapshots by itself.
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
            options |= {"follow": self.snapshots, "poll_seconds": poll_seconds}
        elif eviction is None:
            self._copy_export(options)
            return
        lodestar.export.save(self.model, self.exported, **options)

    def _copy_export(self, options):
        """Copies the export of the first model, and takes its weights."""
        layer, key = self.model.layers[-1], str(options)
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


class MutableIds(keras.Model):
    """Looks up words in an id table that can change."""

    def __init__(self):
        super().__init__()
        self.table = lodestar.lookup.IdTable(["a"], mutable=True, name="ids")

    def call(self, words):
        return self.table.lookup(words)


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
