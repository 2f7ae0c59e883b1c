"""Progress bars on stderr."""

import contextlib
import os
import sys

from lodestar._optional import import_optional


class Progress(contextlib.AbstractContextManager["Progress"]):
    """One bar after another; none where stderr is no terminal."""

    def __init__(self) -> None:
        self._bar = None
        self._tqdm = None
        if sys.stderr is not None and sys.stderr.isatty():
            try:
                self._tqdm = import_optional("tqdm", "a progress bar")
            except ImportError as error:
                print(error, file=sys.stderr)

    def start(
        self, text: str, total: int | None, in_bytes: bool = False
    ) -> None:
        """Ends the bar there is, and starts one.

        Args:
            text: What is being done, and to which file.
            total: What the updates add up to; None if unknown.
            in_bytes: Whether they are bytes, and not samples.
        """
        self._close()
        if self._tqdm is None:
            return
        verb, _, path = text.partition(" ")
        units = {"unit": " samples", "unit_scale": True}
        if in_bytes:
            units = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
        self._bar = self._tqdm.tqdm(
            desc=f"{verb} {os.path.basename(path)}".strip(),
            total=total,
            leave=False,
            **units,
        )

    def update(self, count: int) -> None:
        """Goes on by `count`; nothing before the first bar."""
        if self._bar is not None:
            self._bar.update(count)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __exit__(self, *exception: object) -> None:
        self._close()
