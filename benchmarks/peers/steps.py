"""The protocol of peers_benchmark with libraries of other environments.

    python -m benchmarks.peers.step_NAME DATA.npz

prints one line of JSON when it is ready: the checksums of its works by library.
Then it reads `[library, work]`, one per line, and prints the seconds of each
call. The file has the `matrix`, the `keys` of its rows, batches of the keys
(`ids`) and of their indices (`places`), and the gradient `upstream`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure


def answer(
    libraries: Mapping[str, Mapping[str, Callable[[Any], Any]]],
    feeds: Sequence[Any],
) -> None:
    """Reports that the libraries are ready, then times their works.

    Args:
        libraries: For each library, its works by name.
        feeds: Batches, one per call.
    """
    measure.print_line(
        **{
            name: {
                work: measure.checksum(np.asarray(call(feeds[0])))
                for work, call in works.items()
            }
            for name, works in libraries.items()
        }
    )
    for line in sys.stdin:
        name, work = json.loads(line)
        seconds = measure.call_seconds(libraries[name][work], feeds)
        print(json.dumps(seconds), flush=True)


class Peer:
    """A process of another interpreter.

    Attributes:
        checksums: {library: {work: checksum}} of the works it offers.
    """

    checksums: dict[str, dict[str, str]]

    def __init__(self, python: str, name: str, **data: np.ndarray):
        """Starts `benchmarks.peers.NAME` in an interpreter with `data`."""
        self._command = [python, "-m", f"benchmarks.peers.{name}"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "data.npz")
            np.savez(file, allow_pickle=False, **data)
            root = str(Path(__file__).absolute().parents[2])
            self._process = subprocess.Popen(
                [*self._command, str(file)],
                env={**os.environ, "PYTHONPATH": root},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.checksums = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout  # a pipe
        for line in self._process.stdout:
            if line[0] in "{[":  # not the output of an import
                return json.loads(line)
        raise RuntimeError(
            f"{' '.join(self._command)} ended with status "
            f"{self._process.wait()}."
        )

    def call_seconds(self, library: str, work: str) -> list[float]:
        """Returns the duration of each call of a work there, one per batch."""
        assert self._process.stdin  # a pipe
        self._process.stdin.write(json.dumps([library, work]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()
