"""Generates the click log of wide_deep.py and ctr_distributed.py."""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable

import numpy as np

from lodestar.metrics import BatchAUC


def generate(
    folder: pathlib.Path, samples: int, files: int, seed: int
) -> list[pathlib.Path]:
    """Writes MultiSlot files and their schema, unless the folder exists.

    The true click probabilities and the clicks of each file are next to it, in
    a `.npy` file.
    """
    if not folder.exists():
        print(f"Generating a click log in {folder} ...", flush=True)
        # Renamed at the end, so an interrupted run leaves no half a log.
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = [sys.executable, "-m", "lodestar", "data", "generate"]
        options = [f"--samples={samples}", f"--files={files}", f"--seed={seed}"]
        subprocess.run(
            [*command, *options, partial],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        partial.rename(folder)
    return sorted(folder.glob("part-*.txt"))


def best_auc(files: Iterable[str | pathlib.Path]) -> float | None:
    """Returns the AUC of the true probabilities, or None if they are unknown."""
    truths = [pathlib.Path(file).with_suffix(".npy") for file in files]
    if not all(truth.exists() for truth in truths):
        return None
    probabilities, clicks = np.concatenate([*map(np.load, truths)]).T
    return float(BatchAUC(dtype="float64")(clicks, probabilities))
