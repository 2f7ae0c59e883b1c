"""Serves an exported model in a process of its own.

    serving.py MODEL SLOTS SCORES FILE...

writes the click probabilities of the examples in the FILEs to SCORES, a NumPy
file. Nothing of the training code is imported: what serves is the SavedModel
and Lodestar's ops.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

os.environ.setdefault("LODESTAR_QUIET_START", "1")

import numpy as np  # noqa: E402

_BATCH_SIZE = 4096


def serve_in_new_process(
    model: pathlib.Path, slots: pathlib.Path, files: Sequence[str]
) -> np.ndarray:
    """Runs this file in a new interpreter; returns the scores `[N]`."""
    with tempfile.TemporaryDirectory() as folder:
        scores = pathlib.Path(folder, "scores.npy")
        subprocess.run(
            [sys.executable, __file__, model, slots, scores, *files],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
        return np.load(scores)


def main(arguments: Sequence[str]) -> None:
    """Scores the examples of files with a SavedModel."""
    # First: it quiets TensorFlow's start, and loads the ops.
    from lodestar.data import MultiSlotDataset

    # isort: split
    import tensorflow as tf

    model, slots, scores, *files = arguments
    loaded = tf.saved_model.load(model)
    parts = []
    for features, _ in MultiSlotDataset(files, slots, _BATCH_SIZE):
        (click,) = loaded.serve(features).values()
        parts.append(click.numpy().reshape(-1))
    np.save(scores, np.concatenate(parts))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
