"""Tests of `lodestar data validate`."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lodestar._data_tool import command as tool
from lodestar._data_tool import distinct_ids
from lodestar.data import Column, Schema
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema([Column.label("y"), Column.dense("I"), Column.sparse("C")])
GOOD = "1 1 1 0.5 2 7 8\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Returns the working directory of a test."""
    monkeypatch.chdir(tmp_path)
    SPEC.save("schema.yaml")
    return tmp_path


def run(capsys, *arguments, code=1):
    assert tool.main(["validate", *arguments]) == code
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.splitlines()


def test_good_files(here, capsys):
    (here / "a").write_text(GOOD)
    (here / "b").write_text(GOOD * 2)
    lines = run(capsys, "a", "b", code=0)
    assert lines == ["3 good samples and no errors in 2 files"]


def test_every_bad_line_is_reported(here, capsys):
    bad = ["1 2 1 1 0\n", "1 1 1 x 0\n", "1 1 1 1\n", "1 1 1 1 0 junk\n"]
    (here / "a").write_text(GOOD + GOOD.join(bad) + GOOD)
    lines = run(capsys, "a")
    assert len(lines) == 5
    for line, number in zip(lines, (2, 4, 6, 8)):
        assert line.startswith(f"a:{number}: ")
    assert lines[-1] == "5 good samples and 4 errors in 1 file"
    lines = run(capsys, "--max-errors", "1", "a")
    assert len(lines) == 2 and lines[0].startswith("a:2: ")
    assert lines[-1] == "5 good samples and 4 errors in 1 file"


def test_a_file_that_cannot_be_read_does_not_hide_the_others(here, capsys):
    (here / "a").write_text("1 1 1 x 0\n" + GOOD)
    lines = run(capsys, "--format", "multislot", "missing", "a")
    assert lines[0].startswith("missing: No such file")
    assert lines[1].startswith("a:1: ")
    assert lines[2] == "1 good samples and 2 errors in 2 files"


def test_a_file_that_ends_within_a_line(here, capsys):
    (here / "a").write_text(GOOD + GOOD[:-1])
    lines = run(capsys, "a")
    assert len(lines) == 2 and lines[0].startswith("a:2: ")


def test_files_that_paddle_refuses(here, capsys):
    (here / "a").write_text(GOOD + "1 0 1 1 0\n")
    run(capsys, "a", code=0)
    assert run(capsys, "--paddle", "a") == [
        "a: good sample 2: slot 'C' is empty, which Paddle refuses",
        "2 good samples and 1 error in 1 file",
    ]


def test_check_sums_of_norm(here, capsys):
    with NormWriter("a.norm", SPEC) as writer:
        for i in range(3):
            writer.write({"y": 1, "I": 0.5, "C": [7, i]})
    data = bytearray((here / "a.norm").read_bytes())
    data[69 + 4 + 12] ^= 1  # a key of the first record
    (here / "a.norm").write_bytes(data)
    lines = run(capsys, "a.norm")
    assert lines[0].startswith("a.norm: record 0 at byte 69: ")
    assert lines[1] == "2 good samples and 1 error in 1 file"


def test_parquet_of_other_columns(here, capsys):
    (here / "schema.yaml").unlink()
    columns = {"a": ("y", "C"), "b": ("y", "D"), "c": ("C", "y")}
    for name, (label, ids) in columns.items():
        pq.write_table(pa.table({label: [1], ids: [2]}), f"{name}.parquet")
    pq.write_table(pa.table({"y": [1]}).slice(0, 0), "none.parquet")
    paths = [f"{name}.parquet" for name in ("a", "b", "c", "none")]
    assert run(capsys, "--categorical=C", "--numeric=y", *paths) == [
        "b.parquet: has no column 'C'; its columns are y, D",
        "none.parquet: has no column 'C'; its columns are y",
        "2 good samples and 2 errors in 4 files",
    ]


def test_csv(here, capsys):
    (here / "a.csv").write_text(
        "y,I,C\n1,0.5,7 8\n2,0,7\n1,x,\n1,1,1.5\n0,1,1\n"
    )
    assert run(capsys, "a.csv") == [
        "a.csv: line 3: column 'y': found 2, expected 0 or 1",
        "a.csv: line 4: column 'I': found 'x', expected a float32",
        "a.csv: line 5: column 'C': found '1.5', expected an integer of 64 bits",
        "2 good samples and 3 errors in 1 file",
    ]


def test_metadata_of_parquet(here, capsys):
    (here / "pq").mkdir()
    for name in ("a", "b"):
        with ParquetWriter(f"pq/{name}.parquet", SPEC) as writer:
            writer.write({"y": 1, "I": 0.5, "C": [7]})
    assert run(capsys, "pq", code=0) == [
        "2 good samples and no errors in 2 files"
    ]
    path = here / "pq" / "_metadata.json"
    content = json.loads(path.read_text())
    content["file_stats"][0]["num_rows"] = 5
    content["conts"][0]["col_name"] = "J"
    path.write_text(json.dumps(content))
    (here / "pq" / "schema.yaml").write_text((here / "schema.yaml").read_text())
    assert run(capsys, "pq") == [
        "pq/_metadata.json: conts: column 1 of pq/a.parquet must be 'J', got 'I'.",
        "pq/a.parquet: found 1 rows, expected 5 as in pq/_metadata.json",
        "1 good samples and 6 errors in 2 files",
    ]
    (here / "pq" / "b.parquet").unlink()
    assert run(capsys, "pq/a.parquet") == [
        "pq/a.parquet: found 1 rows, expected 5 as in pq/_metadata.json",
        "0 good samples and 5 errors in 1 file",
    ]


def test_free_dims_that_do_not_divide(here, capsys):
    spec = Schema([Column.label("y"), Column.dense("I", (-1, 2))])
    spec.save("a.schema.yaml")
    with MultiSlotWriter("a", spec) as writer:
        writer.write_batch({"y": [1, 1], "I": ([1.0] * 6, [0, 2, 6])})
    run(capsys, "a", code=0)
    (here / "a").write_text((here / "a").read_text() + "1 1 3 1 1 1\n1 1 0\n")
    lines = run(capsys, "a")
    assert "slot 'I'" in lines[0] and "multiple of 2" in lines[0]
    assert lines[1] == "3 good samples and 1 error in 1 file"


def test_ids_that_slots_share_are_shown(here, capsys, monkeypatch):
    spec = Schema(
        [
            Column.label("y"),
            *map(Column.sparse, "abc"),
            Column.sparse("w", dtype="float"),
        ]
    )
    # The slots {0, 10, 32, 45} and {1, 10, 5, 67} share 10.
    path = here / "in"
    path.write_text("1 1 4 0 10 32 45 4 1 10 5 67 0 1 10\n")
    spec.save(f"{path}.schema.yaml")
    assert run(capsys, "in", code=0) == [
        "1 id shared by slots: 10 in 'a', 'b'",
        "1 good samples and no errors in 1 file",
    ]
    path.write_text("1 1 4 0 10 32 45 3 1 5 67 0 0\n")
    assert run(capsys, "in", code=0)[0].startswith("1 good samples")
    path.write_text("1 1 5 9 8 7 6 5 5 5 6 7 8 9 2 9 5 0\n" * 2)
    assert run(capsys, "in", code=0)[0] == (
        "5 ids shared by slots: 5 in 'a', 'b', 'c'; 6 in 'a', 'b'; 7 in 'a', "
        "'b'; ..."
    )
    monkeypatch.setattr(distinct_ids, "_MAX_DISTINCT", 3)
    assert run(capsys, "in", code=0)[0].startswith("3 or more ids shared by")


def test_slot_sizes_keep_ids_apart(here, capsys):
    spec = Schema([Column.label("y"), Column.sparse("a"), Column.sparse("b")])
    with RawWriter("in.raw", spec) as writer:
        writer.write_batch({"y": [1, 0], "a": ([3, 4], [0, 1, 2]),
                            "b": ([4, 3], [0, 1, 2])})  # fmt: skip
    spec.save("in.raw.schema.yaml")
    assert run(capsys, "in.raw", code=0)[0] == (
        "2 ids shared by slots: 3 in 'a', 'b'; 4 in 'a', 'b'"
    )
    lines = run(capsys, "--slot-size-array", "5,5", "in.raw", code=0)
    assert lines == ["2 good samples and no errors in 1 file"]
