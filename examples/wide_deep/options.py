"""What the command line asks for."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Options:
    """See `main.py --help`."""

    data: list[pathlib.Path] | None
    format: str | None
    slots: pathlib.Path | None
    label: str | None
    categorical: list[str] | None
    numeric: list[str] | None
    key_type: str | None
    layout: str | None
    nnz_per_slot: list[int] | None
    num_samples: int | None
    slot_size_array: list[int] | None
    eval_data: list[pathlib.Path] | None
    eval_fraction: float
    keep_order: bool
    examples: int
    epochs: int
    batch_size: int
    learning_rate: float
    checkpoint_steps: int
    seed: int
    baseline: bool
    output: pathlib.Path
