"""Statistics of served models in the OpenMetrics text format for monitoring.

https://github.com/prometheus/OpenMetrics, version 1.0
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lodestar._checks import check_eager
from lodestar._typing import SavedModel
from lodestar.export.follow import readable_stats
from lodestar.serving.live_model import LiveModel
from lodestar.serving.table_numbers import of_loaded

# Key of `LiveModel.stats()` -> name and help of its metric.
_METRICS = {
    "rows": ("table_rows", "Rows of the table that serves."),
    "hits": ("table_hits", "Ids looked up that had a row, repeats too."),
    "misses": ("table_misses", "Ids looked up that had no row, repeats too."),
    "memory": ("table_memory_bytes", "Memory of the table, in all copies."),
    "version": ("model_version", "The snapshot that is served."),
    "step": ("model_step", "Training step of the snapshot."),
    "snapshot_time": (
        "model_snapshot_time_seconds",
        "When the snapshot was taken, since the Unix epoch.",
    ),
    "seconds_since_update": (
        "model_since_update_seconds",
        "Time since the last version was loaded.",
    ),
    "last_update_seconds": (
        "model_last_update_seconds",
        "How long the last version took to load.",
    ),
    "newest_version": (
        "model_newest_version",
        "The newest snapshot at the last poll.",
    ),
    "lag_versions": ("model_lag_versions", "Snapshots newer than the served."),
    "pinned": ("model_pinned", "1: a rollback holds the version."),
    "following": ("model_following", "1: a thread polls for new snapshots."),
    "last_error": ("model_failing", "1: the newest snapshot is not served."),
    "polls": ("model_polls", "Polls of the snapshot folder."),
    "failures": ("model_failures", "Snapshots that could not be loaded."),
    "updates": ("model_updates", "Snapshots loaded."),
    "full_updates": ("model_full_updates", "Those that replaced whole tables."),
    "rows_written": ("model_rows_written", "Rows written by updates."),
    "rows_removed": ("model_rows_removed", "Rows removed by updates."),
    "bytes": ("model_read_bytes", "Bytes of the files that updates read."),
}
_COUNTERS = (
    *("hits", "misses", "polls", "failures", "updates", "full_updates"),
    *("rows_written", "rows_removed", "bytes"),
)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def openmetrics(
    source: LiveModel | SavedModel | Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
) -> str:
    r"""Writes the statistics of a served model as OpenMetrics text.

    Serve it with the content type
    `application/openmetrics-text; version=1.0.0; charset=utf-8`.

    >>> print(lodestar.serving.openmetrics({"hits": {"user": 3}}), end="")
    # TYPE lodestar_table_hits counter
    # HELP lodestar_table_hits Ids looked up that had a row, repeats too.
    lodestar_table_hits_total{table="user"} 3
    # EOF

    Args:
        source: A `LiveModel`; a folder of `export.save` that
            `tf.saved_model.load` has loaded, for the rows, hits, misses and
            memory of its tables, and for the version of one that follows
            snapshots; or a dict with keys of `LiveModel.stats()`.
            Omits `metadata` and values that are None. `last_error` becomes 1,
            or 0 if it is None.
        labels: Label name -> value, added to each sample: `{"model": "ranker"}`.

    Returns:
        Lines, the last of which is `# EOF`. A table's name is the label `table`.

    Raises:
        TypeError: `source` is none of these, `labels` is not a mapping, a value
            is not a number (of `rows`, `hits`, `misses` and `memory`, not a
            mapping), or a label is not a string.
        ValueError: `source` is an export of `export.save_plain`, a key is not
            one of `LiveModel.stats()`, a counter is negative or not finite,
            `snapshot_time` is not a time, or a label's name does not match
            `[a-zA-Z_][a-zA-Z0-9_]*`, begins with `__`, or is `table`.
        RuntimeError: `source` is a model, and this is a `tf.function`.
    """
    own = _checked_labels(labels or {})
    stats = _stats(source)
    unknown = [k for k in stats if k not in _METRICS and k != "metadata"]
    if unknown:
        raise ValueError(
            f"`source` has {unknown}, for which there is no metric. Use keys "
            "of LiveModel.stats()."
        )
    lines = []
    for key, (name, text) in _METRICS.items():
        if key not in stats:
            continue
        name = f"lodestar_{name}"
        kind = "counter" if key in _COUNTERS else "gauge"
        samples = list(_samples(key, name, stats[key], own))
        if samples:
            lines.append(f"# TYPE {name} {kind}")
            # A name ends in its unit.
            unit = name.rpartition("_")[2]
            if unit in ("bytes", "seconds"):
                lines.append(f"# UNIT {name} {unit}")
            lines += [f"# HELP {name} {text}", *samples]
    return "\n".join([*lines, "# EOF\n"])


def _stats(source: Any) -> Mapping[str, Any]:
    """Returns the statistics of the argument of `openmetrics`."""
    if isinstance(source, Mapping):
        return source
    check_eager("openmetrics")
    if isinstance(source, LiveModel):
        return source.stats()
    return {**_follower_stats(source), **of_loaded(source)}


def _follower_stats(loaded: Any) -> dict[str, Any]:
    """Returns the statistics of a loaded export that follows snapshots."""
    signatures = getattr(loaded, "signatures", {})
    if "follower_stats" not in signatures:
        return {}
    return readable_stats(signatures["follower_stats"]())


def _samples(
    key: str, name: str, value: Any, labels: Mapping[str, str]
) -> Iterator[str]:
    if name.startswith("lodestar_table_"):
        if not isinstance(value, Mapping):
            raise TypeError(
                f"`source[{key!r}]` must be a mapping of tables to numbers, "
                f"got {value!r}."
            )
        for table, number in value.items():
            yield _sample(key, name, number, {**labels, "table": str(table)})
        return
    if key == "last_error":
        value = value is not None
    elif value is None:
        return
    elif key == "snapshot_time":
        value = _seconds(value)
    yield _sample(key, name, value, labels)


def _seconds(time: Any) -> float:
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        raise ValueError(
            "`source['snapshot_time']` must be an ISO 8601 string, got "
            f"{time!r}."
        ) from None


def _sample(key: str, name: str, value: Any, labels: Mapping[str, str]) -> str:
    if key in _COUNTERS:
        name += "_total"
    braces = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
    number = _number(key, value)
    return f"{name}{{{braces}}} {number}" if braces else f"{name} {number}"


def _number(key: str, value: Any) -> str:
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"`source[{key!r}]` must be a number, got {value!r} of "
            f"{type(value).__name__}."
        )
    if key in _COUNTERS and not 0 <= value < float("inf"):
        raise ValueError(
            f"`source[{key!r}]` is a counter and must be finite and at least 0, "
            f"got {value}."
        )
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value) if isinstance(value, bool) else value)


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise TypeError(
            f"`labels` must be a mapping of names to strings, got {labels!r}."
        )
    for name, value in labels.items():
        if name == "table" or not _LABEL.fullmatch(str(name)):
            raise ValueError(
                "Names of `labels` must consist of ASCII letters, digits and "
                "`_`, begin with neither a digit nor `__`, and differ from "
                f"'table', the label of tables, got {name!r}."
            )
        if not isinstance(value, str):
            raise TypeError(
                f"`labels[{name!r}]` must be a string, got {value!r} of "
                f"{type(value).__name__}."
            )
    return dict(labels)


def _escaped(text: str) -> str:
    r"""Escapes a label's value; invalid Unicode becomes `\udcff`."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
