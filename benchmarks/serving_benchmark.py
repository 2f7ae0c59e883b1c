"""A batch of one id through an exported model, beside tf.gather.

Both are SavedModels of one look-up, of 1M rows of 32 numbers, called by their
signature; ours also through a LiveModel. What counts is the difference: a call
of a signature takes far longer than either look-up.
"""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import embedding_benchmark, measure

_DIM = 32
_CALLS = 1000
_WANTED = "within 5 us of tf.gather"


class Gather(tf.Module):
    """Rows of a dense variable."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = tf.Variable(matrix)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def serve(self, ids):
        """Their rows, by name."""
        return {"rows": tf.gather(self.matrix, ids)}


def _rows_of(signature):
    return lambda ids: signature(ids=ids)["rows"]


def _export(folder, keys):
    """Writes both models; returns their paths."""
    ours, stock = (os.path.join(folder, name) for name in ("ours", "stock"))
    variable, matrix = embedding_benchmark.filled(keys, _DIM)
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(table=variable)(ids)
    model = keras.Model({"ids": ids}, {"rows": rows})
    lodestar.export.saved_model(model, ours)
    lodestar.snapshot.save_model(os.path.join(folder, "snapshots"), model)
    gather = Gather(matrix)
    tf.saved_model.save(gather, stock, signatures=gather.serve)
    return ours, stock


def main():
    options = measure.arguments(__doc__)
    rows, calls = (1000, 10) if options.small else (1_000_000, _CALLS)
    keys = embedding_benchmark.spread_keys(rows)
    places = np.random.default_rng(0).integers(0, rows, [calls, 1])
    with tempfile.TemporaryDirectory() as folder:
        ours, stock = _export(folder, keys)
        # A signature does not keep alive what it reads.
        models = [tf.saved_model.load(path) for path in (ours, stock)]
        lookup, gather = (
            _rows_of(model.signatures["serving_default"]) for model in models
        )
        with lodestar.serving.LiveModel(
            ours, os.path.join(folder, "snapshots"), None
        ) as live:
            live_lookup = _rows_of(live.signatures["serving_default"])
            for work, side in (
                ("signature, 1 id", lookup),
                ("signature of a LiveModel, 1 id", live_lookup),
            ):
                measure.compare(
                    work,
                    side,
                    gather,
                    [tf.constant(keys[place]) for place in places],
                    against="tf.gather by a signature",
                    items=1,
                    wanted=_WANTED,
                    runs=options.runs,
                    baseline_feeds=[tf.constant(place) for place in places],
                )


if __name__ == "__main__":
    main()
