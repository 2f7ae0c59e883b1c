"""What a run prints of its data, and the table that ends it."""

import dataclasses
import textwrap
from collections.abc import Sequence

import lodestar
from lodestar.data import SlotSpec


@dataclasses.dataclass(frozen=True)
class Results:
    """What a run measured; None where it did not."""

    steps: int
    examples_per_second: float | None
    auc: float
    best_auc: float | None
    baseline_auc: float | None
    accuracy: float
    tables: Sequence[lodestar.EmbeddingVariable]
    checkpoint_bytes: int
    saved_model_bytes: int
    served: int
    difference: float


def show_slots(slots: SlotSpec) -> None:
    """Prints what the model takes each slot for."""
    used = SlotSpec(slots.used)
    for title, names in (
        ("Label", used.names("label")),
        ("Numbers", used.names("dense")),
        ("Ids", used.names("sparse")),
        ("One-hot", used.names("one_hot")),
        ("Not used", [slot.name for slot in slots if not slot.used]),
    ):
        if names:
            text = f"{title + ':':<10}{', '.join(names)}"
            print(
                textwrap.fill(
                    text,
                    79,
                    subsequent_indent=" " * 10,
                    break_on_hyphens=False,
                    break_long_words=False,
                )
            )


def show(results: Results) -> None:
    """Prints the table."""
    lines = [("steps", f"{results.steps:,}")]
    if results.examples_per_second:
        lines.append(
            ("examples a second", f"{results.examples_per_second:,.0f}")
        )
    lines.append(("AUC, held-out data", f"{results.auc:.4f}"))
    if results.best_auc is not None:
        lines.append(
            ("  best that any model can have", f"{results.best_auc:.4f}")
        )
    if results.baseline_auc is not None:
        lines.append(("  with dense tables", f"{results.baseline_auc:.4f}"))
    lines.append(("accuracy", f"{results.accuracy:.4f}"))
    for table in results.tables:
        stats = table.stats()
        rows = stats["rows"]
        used = sum(v for k, v in stats.items() if k.endswith("_bytes"))
        lines.append(
            (
                f"table {table.name!r}, {table.dim} wide",
                f"{rows:,} ids, {used / max(rows, 1):,.0f} bytes each",
            )
        )
    lines += [
        ("checkpoint", _megabytes(results.checkpoint_bytes)),
        ("SavedModel", _megabytes(results.saved_model_bytes)),
        (
            f"{results.served:,} served scores",
            f"differ by at most {results.difference:.1e}",
        ),
    ]
    width = max(len(name) for name, _ in lines)
    print()
    for name, value in lines:
        print(f"{name:<{width}}  {value}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
