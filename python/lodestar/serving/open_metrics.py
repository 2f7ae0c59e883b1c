"""Statistics of served models as OpenMetrics text, which monitoring collects.

https://github.com/prometheus/OpenMetrics, version 1.0
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lodestar._checks import check_eager
from lodestar.serving.live_model import LiveModel
from lodestar.serving.table_numbers import of_loaded


class _Metric(NamedTuple):
    name: str
    type: str
    help: str
    unit: str = ""


# Of a key of `stats`. A family ends in its unit, a counter's sample in _total.
_METRICS = {
    "rows": _Metric("table_rows", "gauge", "Rows of the table that serves."),
    "hits": _Metric(
        "table_hits", "counter", "Ids looked up that had a row, repeats too."
    ),
    "misses": _Metric(
        "table_misses", "counter", "Ids looked up that had no row, repeats too."
    ),
    "memory": _Metric(
        *("table_memory_bytes", "gauge"),
        *("Memory of the table, in all copies.", "bytes"),
    ),
    "version": _Metric(
        "model_version", "gauge", "The snapshot that is served."
    ),
    "step": _Metric("model_step", "gauge", "Training step of the snapshot."),
    "snapshot_time": _Metric(
        *("model_snapshot_time_seconds", "gauge"),
        *("When the snapshot was taken, of the Unix epoch.", "seconds"),
    ),
    "seconds_since_update": _Metric(
        *("model_since_update_seconds", "gauge"),
        *("Since the last version was taken in.", "seconds"),
    ),
    "last_update_seconds": _Metric(
        *("model_last_update_seconds", "gauge"),
        *("How long the last version took to be taken in.", "seconds"),
    ),
    "newest_version": _Metric(
        "model_newest_version", "gauge", "The newest snapshot at the last poll."
    ),
    "lag_versions": _Metric(
        "model_lag_versions", "gauge", "Snapshots newer than what is served."
    ),
    "pinned": _Metric(
        "model_pinned", "gauge", "1: a rollback holds the version."
    ),
    "following": _Metric(
        "model_following", "gauge", "1: new snapshots are looked for."
    ),
    "last_error": _Metric(
        "model_failing", "gauge", "1: the newest snapshot cannot be served."
    ),
    "polls": _Metric(
        "model_polls", "counter", "Looks into the folder of snapshots."
    ),
    "failures": _Metric(
        "model_failures", "counter", "Snapshots that could not be taken in."
    ),
    "updates": _Metric("model_updates", "counter", "Snapshots taken in."),
    "full_updates": _Metric(
        "model_full_updates", "counter", "Those that replaced whole tables."
    ),
    "rows_written": _Metric(
        "model_rows_written", "counter", "Rows written by updates."
    ),
    "rows_removed": _Metric(
        "model_rows_removed", "counter", "Rows removed by updates."
    ),
    "bytes": _Metric(
        *("model_read_bytes", "counter"),
        *("Bytes of the files that updates read.", "bytes"),
    ),
}
# No numbers.
_LEFT_OUT = ("metadata",)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def openmetrics(source: Any, labels: Mapping[str, str] | None = None) -> str:
    r"""Writes the statistics of a served model as OpenMetrics text.

    Serve it with the content type
    `application/openmetrics-text; version=1.0.0; charset=utf-8`.

    >>> print(lodestar.serving.openmetrics({"hits": {"user": 3}}), end="")
    # TYPE lodestar_table_hits counter
    # HELP lodestar_table_hits Ids looked up that had a row, repeats too.
    lodestar_table_hits_total{table="user"} 3
    # EOF

    Args:
        source: A `LiveModel`; what `tf.saved_model.load` returns for a folder
            of `export.save`, of which rows, hits, misses and memory of the
            tables are written; or some or all keys of the dict that
            `LiveModel.stats()` returns. Values that are None are omitted, as
            is `metadata`. `last_error` becomes 1, or 0 if it is None.
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
    unknown = [k for k in stats if k not in _METRICS and k not in _LEFT_OUT]
    if unknown:
        raise ValueError(
            f"`source` has {unknown}, for which there is no metric. The keys "
            "must be those of LiveModel.stats()."
        )
    lines = []
    for key, metric in _METRICS.items():
        if key not in stats:
            continue
        samples = list(_samples(key, metric, stats[key], own))
        if samples:
            name = f"lodestar_{metric.name}"
            lines.append(f"# TYPE {name} {metric.type}")
            if metric.unit:
                lines.append(f"# UNIT {name} {metric.unit}")
            lines += [f"# HELP {name} {metric.help}", *samples]
    return "\n".join([*lines, "# EOF\n"])


def _stats(source: Any) -> Mapping[str, Any]:
    """Returns the statistics of what `openmetrics` takes."""
    if isinstance(source, Mapping):
        return source
    check_eager("openmetrics")
    if isinstance(source, LiveModel):
        return source.stats()
    return of_loaded(source)


def _samples(
    key: str, metric: _Metric, value: Any, labels: Mapping[str, str]
) -> Iterator[str]:
    if metric.name.startswith("table_"):
        if not isinstance(value, Mapping):
            raise TypeError(
                f"`source[{key!r}]` is {value!r}; wanted table -> number."
            )
        for table, number in value.items():
            of_table = {**labels, "table": str(table)}
            yield _sample(key, metric, number, of_table)
        return
    if key == "last_error":
        value = value is not None
    elif value is None:
        return
    elif key == "snapshot_time":
        value = _seconds(value)
    yield _sample(key, metric, value, labels)


def _seconds(time: Any) -> float:
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        raise ValueError(
            f"`source['snapshot_time']` is {time!r}, wanted ISO 8601 text."
        ) from None


def _sample(
    key: str, metric: _Metric, value: Any, labels: Mapping[str, str]
) -> str:
    name = f"lodestar_{metric.name}"
    if metric.type == "counter":
        name += "_total"
    braces = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
    number = _number(key, value, metric.type == "counter")
    return f"{name}{{{braces}}} {number}" if braces else f"{name} {number}"


def _number(key: str, value: Any, counts: bool) -> str:
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"`source[{key!r}]` is {value!r}, of {type(value).__name__}; wanted "
            "a number."
        )
    if counts and not 0 <= value < float("inf"):
        raise ValueError(
            f"`source[{key!r}]` is {value}; a counter is 0 or more, and finite."
        )
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value) if isinstance(value, bool) else value)


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise TypeError(f"`labels` is {labels!r}; wanted name -> text.")
    for name, value in labels.items():
        if name == "table" or not _LABEL.fullmatch(str(name)):
            raise ValueError(
                f"`labels` has the name {name!r}; wanted letters of ASCII, "
                "digits and `_`, no digit and no `__` at the start, and not "
                "'table', which is the tables' own."
            )
        if not isinstance(value, str):
            raise TypeError(
                f"`labels[{name!r}]` is {value!r}, of {type(value).__name__}; "
                "wanted text."
            )
    return dict(labels)


def _escaped(text: str) -> str:
    r"""A label's value between quotes; what is no Unicode becomes `\udcff`."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
