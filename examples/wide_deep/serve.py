"""Serves the exported model in a separate process: serve.py OUTPUT SCORES.

Writes the click probabilities of the evaluation examples to SCORES, a NumPy
file. It serves the SavedModel, which loads the training's snapshots; it does
not import the training code.
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
    """Scores the evaluation examples."""
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
        sys.exit(130)  # the parent process reports it
