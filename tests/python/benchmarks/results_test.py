"""Tests of results.py and its page, without the other libraries."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import report, report_tables, results
from benchmarks.peers import results_data, training

FIGURES = Path(__file__).resolve().parents[3] / "docs" / "benchmarks"


def test_the_page_has_the_figures_of_the_file():
    record = report.load(FIGURES)["results"]
    page = (FIGURES.parent / "results.md").read_text()
    assert page == report_tables.with_results(page, record)
    record["lines"][0]["auc"] = 0.1234
    assert "| Lodestar | 0.1234 |" in report_tables.with_results(page, record)


def test_the_stream_is_in_order_and_has_a_best_auc(tmp_path):
    task = results_data.stream(tmp_path, 4000)
    train, test = pq.read_table(task.train), pq.read_table(task.test)
    assert (len(train), len(test)) == (task.rows, 200) == (4000, 200)
    assert train.column_names == ["label", *task.ids, *task.numbers]
    assert 0.6 < task.best_auc < 1
    # Ids are hashes, and the test has ids that came late.
    first = set(train[task.ids[2]].to_pylist())
    assert min(first) < -(2**60) and max(first) > 2**60
    assert set(test[task.ids[2]].to_pylist()) - first
    # Equal arguments make equal files.
    (tmp_path / "again").mkdir()
    again = results_data.stream(tmp_path / "again", 4000)
    assert pq.read_table(again.train).equals(train)


def task_of(folder, buckets):
    """Returns 1,000 rows whose label depends on the first id."""
    rng = np.random.default_rng(1)
    shop = rng.integers(0, 20, 1000)
    ids = {"shop": shop} if buckets else {"shop": np.char.mod("s%d", shop)}
    table = pa.table(
        {
            **ids,
            "item": rng.integers(0, 50, 1000),
            "price": rng.random(1000, np.float32),
            "label": shop % 2,
        }
    )
    paths = [str(folder / name) for name in ("train.parquet", "test.parquet")]
    pq.write_table(table[:800], paths[0])
    pq.write_table(table[800:], paths[1])
    return training.Task(
        "adult",
        *(["shop", "item"], ["price"], *paths),
        rows=800,
        epochs=2,
        batch_size=64,
        dim=4,
        units=[8],
        learning_rate=0.2,
        buckets=buckets,
    )


@pytest.mark.parametrize(
    ("library", "buckets"), [("Lodestar", 0), ("Keras", 0), ("Keras", 64)]
)
def test_a_library_trains(tmp_path, capsys, library, buckets):
    task = task_of(tmp_path, buckets)
    results.compare(task, [library], {library: sys.executable}, 1)
    line = json.loads(capsys.readouterr().out)
    assert line["library"] == library and line["version"].startswith(library)
    assert line["auc"] > 0.9
    rows = {"Lodestar": 70, "Keras": 2 * buckets or 72}  # and an unknown each
    assert line["table_rows"] == rows[library]
    for field in ("examples_per_second", "first_step_seconds", "request_ms"):
        assert line[field] > 0
    assert line["bytes_per_row"] >= 32 and line["export_bytes"] > 1000
    assert (line["train_rows"], line["test_rows"]) == (800, 200)


def test_a_training_that_fails(tmp_path):
    with pytest.raises(results.TrainingError, match="Keras failed on adult"):
        results.compare(
            task_of(tmp_path, 0), ["Keras"], {"Keras": "/bin/false"}, 1
        )
