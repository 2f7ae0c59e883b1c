"""Tests of the OpenMetrics text with a strict parser of version 1.0."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf
from followed_models import Trainer, flip_byte, serve, table_file

from lodestar.serving import LiveModel, openmetrics

_TYPES = {"gauge": "", "counter": "_total"}
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{([a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"'
    r'(?:,[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*")*)\})?'
    r" (NaN|[+-]Inf|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)",
    re.ASCII,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def parse(text):
    """Returns {sample: {labels: value}}; fails if the standard is violated."""
    assert text.endswith("# EOF\n") and text.count("# EOF\n") == 1
    found, families, family = {}, {}, None
    for line in text.split("\n")[:-2]:
        if line.startswith("#"):
            _, kind, name, value = line.split(" ", 3)
            if kind == "TYPE":
                assert name not in families and value in _TYPES, line
                family = families[name] = {"type": value, "name": name}
            # All metadata of a family precedes its samples.
            assert family["name"] == name and not family.get("samples"), line
            assert kind not in family and kind in ("TYPE", "UNIT", "HELP"), line
            family[kind] = value
            if kind == "UNIT":
                assert name.endswith("_" + value), line
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        assert name == family["name"] + _TYPES[family["type"]], line
        family["samples"] = True
        pairs = _LABEL.findall(labels or "")
        assert len(dict(pairs)) == len(pairs), line
        key = frozenset((k, unescaped(v)) for k, v in pairs)
        samples = found.setdefault(name, {})
        assert key not in samples, line
        samples[key] = float(value.replace("Inf", "inf"))
        if family["type"] == "counter":
            assert samples[key] >= 0 and math.isfinite(samples[key]), line
    assert all(family.get("samples") for family in families.values())
    return found


def only(samples):
    (value,) = samples.values()
    return value


def test_a_live_model(tmp_path):
    trainer = Trainer(tmp_path)
    live = LiveModel(trainer.exported, trainer.snapshots, poll_seconds=None)
    first = parse(openmetrics(live))
    assert "lodestar_model_version" not in first  # None: there is no snapshot
    trainer.train()
    trainer.save(metadata={"day": "Monday"})
    live.poll()
    live(trainer.features)
    stats = live.stats()
    found = parse(openmetrics(stats, {"model": "ranker"}))
    model = frozenset({("model", "ranker")})
    table = model | {("table", "clicks")}
    assert found["lodestar_model_version"] == {model: 1}
    assert found["lodestar_model_updates_total"] == {model: 1}
    assert found["lodestar_model_failing"] == {model: 0}
    assert found["lodestar_model_pinned"] == {model: 0}
    for name in ("hits", "misses"):
        assert found[f"lodestar_table_{name}_total"] == {
            table: stats[name]["clicks"]
        }
    assert found["lodestar_table_memory_bytes"][table] > 0
    assert (
        only(found["lodestar_model_snapshot_time_seconds"])
        == np.datetime64(stats["snapshot_time"][:-1], "ms").astype(int) / 1000
    )
    # All keys except the non-numeric one.
    assert len(found) == len(stats) - 1


def test_an_export_that_follows_snapshots(tmp_path):
    trainer = Trainer(tmp_path, follow=True)
    served = serve(trainer, "export")
    loaded = served.loaded
    found = parse(openmetrics(loaded))
    assert "lodestar_model_version" not in found
    assert only(found["lodestar_model_updates_total"]) == 0
    trainer.train()
    trainer.save()
    trainer.save()
    flip_byte(table_file(trainer.snapshots, 2))
    loaded.signatures["refresh"]()
    loaded.serve(trainer.features)
    found = parse(openmetrics(loaded))
    for name, value in (
        ("version", 1),
        ("step", 1),
        ("updates_total", 1),
        ("full_updates_total", 1),
        ("failures_total", 1),
        ("failing", 1),
        ("newest_version", 2),
        ("lag_versions", 1),
        ("following", 0),
        ("pinned", 0),
        ("polls_total", 2),
        ("rows_written_total", int(trainer.table.size())),
    ):
        assert only(found[f"lodestar_model_{name}"]) == value
    assert only(found["lodestar_model_since_update_seconds"]) > 0
    assert only(found["lodestar_model_snapshot_time_seconds"]) > 1.6e9
    hits = only(found["lodestar_table_hits_total"])
    assert hits > 0
    # The counters of both copies are the same.
    trainer.save()
    loaded.signatures["refresh"]()
    loaded.serve(trainer.features)
    found = parse(openmetrics(loaded))
    assert only(found["lodestar_model_version"]) == 3
    assert only(found["lodestar_table_hits_total"]) == 2 * hits


def test_the_text_of_two_tables():
    text = openmetrics(
        {"memory": {"b": 2, "a": 1}, "hits": {"user": 3}, "polls": 4}
    )
    assert text.splitlines() == [
        "# TYPE lodestar_table_hits counter",
        "# HELP lodestar_table_hits Ids looked up that had a row, repeats too.",
        'lodestar_table_hits_total{table="user"} 3',
        "# TYPE lodestar_table_memory_bytes gauge",
        "# UNIT lodestar_table_memory_bytes bytes",
        "# HELP lodestar_table_memory_bytes Memory of the table, in all copies.",
        'lodestar_table_memory_bytes{table="b"} 2',
        'lodestar_table_memory_bytes{table="a"} 1',
        "# TYPE lodestar_model_polls counter",
        "# HELP lodestar_model_polls Polls of the snapshot folder.",
        "lodestar_model_polls_total 4",
        "# EOF",
    ]


@pytest.mark.parametrize(
    "name",
    ["", 'a"b', "back\\slash", "\\n", "two\nlines", "{a=1} 2 # x", "Größe 数"],
)
def test_names_are_escaped(name):
    found = parse(openmetrics({"rows": {name: 7}}, {"model": name}))
    assert found["lodestar_table_rows"] == {
        frozenset({("model", name), ("table", name)}): 7
    }


def test_a_name_that_is_not_unicode():
    # Two names stay different.
    text = openmetrics({"rows": dict.fromkeys(["\udcff", "\udcfe"], 1)})
    assert parse(text)["lodestar_table_rows"] == {
        frozenset({("table", name)}): 1 for name in (r"\udcff", r"\udcfe")
    }
    assert text.encode()


@pytest.mark.parametrize(
    "value, text",
    [
        (np.int64(5), "5"),
        (np.uint8(5), "5"),
        (np.float32(0.5), "0.5"),
        (np.array(1e20), "1e+20"),
        (np.bool_(True), "1"),
        (True, "1"),
        (2**70, str(2**70)),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (-np.inf, "-Inf"),
    ],
)
def test_numbers(value, text):
    written = openmetrics({"step": value})
    assert f"lodestar_model_step {text}\n" in written
    parse(written)


def test_nothing_to_say():
    assert openmetrics({}) == "# EOF\n"
    assert openmetrics({"rows": {}, "version": None}) == "# EOF\n"
    assert openmetrics({"metadata": {"a": "b"}}) == "# EOF\n"


def test_an_error_is_one():
    found = parse(openmetrics({"last_error": "CorruptSnapshotError: ..."}))
    assert only(found["lodestar_model_failing"]) == 1


@pytest.mark.parametrize(
    "stats, labels, error, message",
    [
        ({"row": 1}, {}, ValueError, r"`source` has \['row'\], for which"),
        (
            {"polls": -1},
            {},
            ValueError,
            "'polls'.* must be finite and .*, got -1",
        ),
        ({"polls": np.nan}, {}, ValueError, "a counter and must be .* got nan"),
        ({"polls": np.inf}, {}, ValueError, "a counter and must be .* got inf"),
        (
            {"step": "5"},
            {},
            TypeError,
            "'step'.* must be a number, got '5' of str",
        ),
        ({"step": 1j}, {}, TypeError, "must be a number, got 1j of complex"),
        (
            {"step": np.ones(2)},
            {},
            TypeError,
            "must be a number, .* of ndarray",
        ),
        ({"step": [1]}, {}, TypeError, "must be a number, .* of list"),
        ({"step": {"a": 1}}, {}, TypeError, "must be a number, .* of dict"),
        (
            {"rows": {"a": None}},
            {},
            TypeError,
            "must be a number, .* of NoneType",
        ),
        ({"rows": 5}, {}, TypeError, "'rows'.* must be a mapping .* got 5"),
        (
            {"snapshot_time": "now"},
            {},
            ValueError,
            "must be an ISO 8601 .* got 'now'",
        ),
        ({}, ["a"], TypeError, r"`labels` must be a mapping .* got \['a'\]"),
        ({}, {1: "a"}, ValueError, "`labels` must .* letters.* got 1"),
        ({}, {"table": "x"}, ValueError, "`labels` must .* got 'table'"),
        ({}, {"a-b": "x"}, ValueError, "`labels` must .* got 'a-b'"),
        ({}, {"__a": "x"}, ValueError, "`labels` must .* got '__a'"),
        ({}, {"ä": "x"}, ValueError, "`labels` must .* got 'ä'"),
        (
            {},
            {"a": 1},
            TypeError,
            r"`labels\['a'\]` must be a string, got 1 of int",
        ),
    ],
)
def test_unsupported_values(stats, labels, error, message):
    with pytest.raises(error, match=message):
        openmetrics(stats, labels)


def test_a_tensor_is_no_number():
    with pytest.raises(TypeError, match="must be a number"):
        openmetrics({"step": tf.constant(1)})
