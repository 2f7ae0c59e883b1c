"""What the command line asks for."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Options:
    """See `main.py --help`."""

    data: list[pathlib.Path] | None
    label: str | None
    slots: pathlib.Path | None
    eval_data: list[pathlib.Path] | None
    eval_fraction: float
    examples: int
    epochs: int
    batch_size: int
    learning_rate: float
    checkpoint_steps: int
    seed: int
    baseline: bool
    output: pathlib.Path
