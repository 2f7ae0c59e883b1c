"""Serves the exported model in a process of its own: serve.py OUTPUT SCORES.

Writes the click probabilities of the examples to evaluate on to SCORES, a NumPy
file. What serves is the SavedModel, which takes in the snapshots of the
training; nothing of the training code is imported.
"""

import os
import pathlib
import sys

os.environ.setdefault("LODESTAR_QUIET_START", "1")

import lodestar  # noqa: E402

# isort: split
import numpy as np  # noqa: E402
from prepared import PreparedData  # noqa: E402


def serve(output: pathlib.Path, scores: pathlib.Path) -> None:
    """Scores the examples to evaluate on."""
    data = PreparedData.load(output / "data")
    with lodestar.serving.LiveModel(
        output / "saved_model", output / "snapshots"
    ) as model:
        parts = [model(features) for features, _ in data.eval_dataset()]
    np.save(scores, np.concatenate([p.popitem()[1].numpy() for p in parts]))


if __name__ == "__main__":
    try:
        serve(*map(pathlib.Path, sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)  # the program that started it says so
