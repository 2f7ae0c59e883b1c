"""Serves an exported model in a process of its own.

    serving.py MODEL SLOTS FORMAT OPTIONS SCORES FILE...

writes the click probabilities of the examples in the FILEs to SCORES, a NumPy
file. The FILEs are of the FORMAT, and OPTIONS, as JSON, are those of its
dataset. Nothing of the training code is imported: what serves is the SavedModel
and Lodestar's ops.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("LODESTAR_QUIET_START", "1")

import numpy as np  # noqa: E402

_BATCH_SIZE = 4096


def serve_in_new_process(
    model: pathlib.Path,
    slots: str,
    format: str,
    options: Mapping[str, Any],
    files: Sequence[str],
) -> np.ndarray:
    """Runs this file in a new interpreter; returns the scores `[N]`."""
    with tempfile.TemporaryDirectory() as folder:
        scores = pathlib.Path(folder, "scores.npy")
        arguments = [model, slots, format, json.dumps(options), scores]
        subprocess.run(
            [sys.executable, __file__, *arguments, *files],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
        return np.load(scores)


def main(arguments: Sequence[str]) -> None:
    """Scores the examples of files with a SavedModel."""
    # First: it quiets TensorFlow's start, and loads the ops.
    from lodestar.data import open_dataset

    # isort: split
    import tensorflow as tf

    model, slots, format, options, scores, *files = arguments
    dataset = open_dataset(
        files, slots, _BATCH_SIZE, format=format, **json.loads(options)
    )
    loaded = tf.saved_model.load(model)
    parts = []
    for features, _ in dataset:
        (click,) = loaded.serve(features).values()
        parts.append(click.numpy().reshape(-1))
    np.save(scores, np.concatenate(parts))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
