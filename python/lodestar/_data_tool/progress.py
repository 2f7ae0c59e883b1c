"""Progress bars on stderr."""

import contextlib
import os
import sys

from rich import progress
from rich.console import Console


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Shows one progress bar at a time, if stderr is a terminal."""

    def __init__(self) -> None:
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.completed:,.0f} samples"),
            progress.TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            # Rich would redirect the output of a pipe on stdout to stderr.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            transient=True,
            disable=sys.stderr is None or not sys.stderr.isatty(),
        )
        self._task: progress.TaskID | None = None

    def start(self, text: str, total: int | None) -> None:
        """Replaces the bar; `text` is an action and a path."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        verb, _, path = text.partition(" ")
        description = f"{verb} {os.path.basename(path)}".strip()
        self._task = self._bars.add_task(description, total=total)
        self._bars.start()

    def update(self, count: int) -> None:
        """Advances the bar by `count`; does nothing before the first bar."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()
