"""Names for the outputs of the EmbeddingStats op."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_VALUES = (
    "rows",
    "index_bytes",
    "row_bytes",
    "slot_bytes",
    "policy_bytes",
    "capacity",
    "max_rows",
    "pending",
    "ids",
    "unique_ids",
    "padding",
    "hits",
    "misses",
    "inserts",
    "admitted",
    "refused",
    "evicted",
    "removed",
    "gradients_dropped",
    "nonfinite_gradients",
    "read_hits",
    "read_misses",
)


def by_name(
    devices: Sequence[str] | None,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> dict[str, Any]:
    """Returns the result of `EmbeddingVariable.stats`, summed over parts."""
    values, shards = zip(*parts, strict=True)
    stats = _by_name(np.sum(values, 0), np.concatenate(shards))
    if devices is not None:
        of_each = [_by_name(*part) for part in parts]
        stats["per_part"] = {
            "devices": list(devices),
            "rows": [part["rows"] for part in of_each],
            "bytes": [part["bytes"] for part in of_each],
        }
    return stats


def _by_name(values: np.ndarray, shards: np.ndarray) -> dict[str, Any]:
    stats: dict[str, Any] = {
        n: int(v) for n, v in zip(_VALUES, values, strict=True)
    }
    rows, shard_bytes = shards.T.tolist()
    stats["max_rows"] = stats["max_rows"] or None
    stats["bytes"] = sum(
        stats[f"{part}_bytes"] for part in ("index", "row", "slot", "policy")
    )
    stats["load"] = stats["rows"] / max(stats["capacity"], 1)
    real = stats["ids"] - stats["padding"]
    stats["unique_ratio"] = stats["unique_ids"] / max(real, 1)
    stats["padding_share"] = stats["padding"] / max(stats["ids"], 1)
    stats["shards"] = len(rows)
    stats["per_shard"] = {"rows": rows, "bytes": shard_bytes}
    return stats
