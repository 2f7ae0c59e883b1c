"""The data tool: its command line, exit codes and messages."""

import datetime
import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from census import CENSUS

from lodestar._data_tool import command as tool
from lodestar.data import Column, Schema
from lodestar.data.files.schema_beside import schema_path
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema([Column.label("y"), Column.dense("I", (2,)), Column.sparse("C")])
TEXT = "1 1 2 0.5 -2 2 7 18446744073709551615\n1 0 2 3 0.1 0\n1 1 2 0 1 1 8\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Returns the working directory of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def text(here):
    """Writes a MultiSlot file and its schema file."""
    (here / "in.txt").write_text(TEXT)
    SPEC.save("in.txt.schema.yaml")
    return here / "in.txt"


def run(command, code=0):
    assert tool.main(command.split()) == code


def failure(capsys, command):
    """Returns the one line that a failing command prints."""
    capsys.readouterr()
    run(command, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("lodestar.data: ") and said.err.endswith("\n")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("lodestar.data: ").strip()


def names():
    return sorted(os.listdir("."))


def test_convert_and_inspect_csv(here, capsys):
    (here / "in.csv").write_text(CENSUS.replace('"Self, inc"', "Self"))
    assert (
        tool.main(
            [
                "convert",
                "--label=Salary=>50K",
                "--numeric=age,hours",
                "in.csv",
                "o.txt",
            ]
        )
        == 0
    )
    said = capsys.readouterr()
    assert said.out == (
        "o.txt: 4 samples; columns: 1 label, 2 dense, 2 sparse; "
        "o.txt.schema.yaml\n"
    )
    # No progress if stderr is not a terminal.
    assert said.err == (
        "lodestar.data: Text: delimiter ',', quote '\"', header in line 1.\n"
    )
    run("inspect o.txt")
    assert capsys.readouterr().out.startswith("4 samples in 1 file\ncolumn")


def test_options_of_csv(here):
    (here / "in").write_text("y;a;b\n1;7;-\n0;8;2\n")
    run(
        "convert --format csv --to multislot --label=y --categorical=a "
        "--numeric=b --na-value=- --delimiter=; in out"
    )
    ((features, _),) = MultiSlotDataset("out", schema_path("out"), 10)
    assert features["a"].to_list() == [[7], [8]]
    assert features["b"].numpy().tolist() == [[0], [2]]


def test_a_schema_reads_hexadecimal_ids(here):
    with gzip.open("in.tsv.gz", "wb") as file:
        file.write(b"label\tC1\n1\t0000ff00\n0\t\n")
    Schema([Column.label("label"), Column.sparse("C1", encoding="hex")]).save(
        "s"
    )
    run("convert --schema s in.tsv.gz out.txt")
    assert (here / "out.txt").read_text() == "1 1 1 65280\n1 0 0\n"


def test_ids_are_not_hashed_again_from_csv(text, here):
    run("convert in.txt a.csv")
    assert (here / "a.csv").read_text() == (
        "y,I_0,I_1,C\n1,0.5,-2,7 18446744073709551615\n0,3,0.1,\n1,0,1,8\n"
    )
    run("convert a.csv b.txt")
    assert (here / "b.txt").read_text() == TEXT


@pytest.mark.parametrize("to", ["norm", "parquet", "csv", "multislot"])
def test_a_folder_of_files(text, here, capsys, to):
    key = " --key-type int64" if to == "norm" else ""
    run(f"convert{key} --files 2 --to {to} in.txt out")
    suffix = {"multislot": "txt"}.get(to, to)
    parts = [f"part-0000{i}.{suffix}" for i in range(2)]
    more = {"norm": ["file_list.txt"]}
    more["parquet"] = ["_metadata.json", "file_list.txt"]
    assert sorted(os.listdir("out")) == sorted(
        [*parts, "schema.yaml", *more.get(to, [])]
    )
    run(f"convert{key} out back.txt")
    assert (here / "back.txt").read_text() == TEXT
    if "file_list.txt" in os.listdir("out"):
        run(f"convert{key} --limit 2 out/file_list.txt back.txt")
        assert (here / "back.txt").read_text() == TEXT[: TEXT.index("1 1 2 0 ")]
    assert failure(
        capsys, f"convert --to {to} --files 2 in.txt out"
    ).startswith("out: cannot be written: it exists")


def test_key_types_of_both_sides(text, here):
    run("convert --out-key-type int64 in.txt a.norm")
    run("convert --limit 1 --key-type int64 a.norm b.norm")
    run("convert --key-type int64 a.norm c.txt")
    assert (here / "c.txt").read_text() == TEXT


def test_several_inputs_and_a_limit(text, here):
    run("convert --limit 5 in.txt in.txt out.txt")
    lines = TEXT.splitlines(keepends=True)
    assert (here / "out.txt").read_text() == TEXT + lines[0] + lines[1]


def test_skip_reports_skipped_samples(text, here, capsys):
    text.write_text(TEXT + "1 5 2 0 1 0\n" + TEXT)
    assert failure(capsys, "convert in.txt out.txt").startswith("in.txt:4: ")
    run("convert --on-error skip in.txt out.txt")
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("lodestar.data: skipped: in.txt:4: slot 'y'")
    assert said[1] == "lodestar.data: 1 records were skipped"
    assert (here / "out.txt").read_text() == TEXT * 2


@pytest.mark.parametrize("name", ["in.txt", "in.csv"])
def test_skips_of_several_files_are_reported_once(here, capsys, name):
    if name == "in.csv":
        rows = "1,1\n0,2\n5,3\n"
        (here / "schema.yaml").write_text("label: [y]\ndense: [a]\n")
        (here / name).write_text("y,a\n" + rows)
    else:
        (here / "in.txt.schema.yaml").write_text("label: [y]\ndense: [a]\n")
        (here / name).write_text("1 1 1 1\n1 0 1 2\n1 5 1 3\n")
    run(f"convert --on-error skip --to multislot --files 2 {name} out")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[1] == "lodestar.data: 1 records were skipped"
    assert (here / "out" / "part-00001.txt").read_text() == "1 0 1 2\n"


def test_long_cells(here, capsys):
    ids = " ".join(map(str, range(2**60, 2**60 + 20_000)))
    (here / "schema.yaml").write_text("label: [y]\nsparse: [C]\n")
    (here / "in.csv").write_text(f"y,C\n1,{ids}\n")
    run("convert in.csv out.txt")
    assert (here / "out.txt").read_text() == f"1 1 20000 {ids}\n"
    (here / "in.csv").write_text("y,C\n1," + "9" * 5000 + "\n")
    said = failure(capsys, "convert in.csv out.txt")
    assert said.startswith("in.csv: line 2: column 'C': found '9999")


@pytest.mark.parametrize("target", ["./in.txt", "link.txt", "sub/../in.txt"])
def test_an_input_by_another_name_is_not_overwritten(
    text, here, capsys, target
):
    (here / "sub").mkdir()
    (here / "link.txt").symlink_to("in.txt")
    said = failure(capsys, f"convert in.txt {target}")
    assert said == f"{target}: is both input and output."
    assert text.read_text() == TEXT


def test_skip_in_csv(here, capsys):
    Schema([Column.label("y"), Column.dense("a")]).save("in.csv.schema.yaml")
    (here / "in.csv").write_text("y,a\n1,2\nx,2\n0,x\n0,3\n")
    run("convert --on-error skip in.csv out.txt")
    said = capsys.readouterr().err.splitlines()
    for line, place in zip(said, ["line 3: column 'y'", "line 4: column 'a'"]):
        assert line.startswith(f"lodestar.data: skipped: in.csv: {place}: ")
    assert said[2] == "lodestar.data: 2 records were skipped"
    assert (here / "out.txt").read_text() == "1 1 1 2\n1 0 1 3\n"


def test_warnings_are_one_line(here, capsys):
    (here / "in.csv").write_text("y,a\n1,2\n0,3")
    run("convert --label=y --numeric=a in.csv out.txt")
    assert capsys.readouterr().err == (
        "lodestar.data: Text: delimiter ',', quote '\"', header in line 1.\n"
        "lodestar.data: warning: in.csv: the last line does not end in a "
        "newline; the file may be cut short\n"
    )


FAILURES = [
    (
        "convert in.txt out",
        "out: the format is unknown. Pass --to multislot|instant|norm|raw",
    ),
    ("convert in.txt in.txt", "in.txt: is both input and output"),
    ("convert no.txt out.txt", "no.txt: No such file or directory"),
    (
        "convert in.txt no/out.txt",
        "no/out.txt: cannot be written: No such file",
    ),
    ("convert empty out.txt", "empty: the file is empty"),
    ("convert junk out.txt", "junk: shows no format; say which it is of multi"),
    ("convert folder out.txt", "folder: is a folder without files of data"),
    ("convert in.txt folder --to norm", "folder: cannot be written: it is a f"),
    (
        "convert other.txt out.txt",
        "other.txt: the columns are unknown. Pass a schema file",
    ),
    ("convert --schema no in.txt out.txt", "no: No such file or directory"),
    (
        "convert --check sum in.txt out.txt",
        "--check is for norm, but the format is multislot",
    ),
    (
        "convert --label y in.txt out.txt",
        "--label is for parquet, tfrecord, csv, tsv, arrow, jsonl, but the",
    ),
    (
        "convert --out-nnz 2 in.txt o.norm",
        "--out-nnz is for raw, but the format is norm",
    ),
    (
        "convert --files 9 in.txt o --to csv",
        "o: 9 files need at least as many samples, got 3",
    ),
    (
        "convert --to parquet in.txt out",
        "out: the name must end in .parquet",
    ),
    (
        "convert in.txt in.csv out.norm",
        "in.csv: is csv, but in.txt is multislot",
    ),
    (
        "convert in.txt out.norm",
        "out.norm: sample 1: slot 'C' must be a ",
    ),
    (
        "convert in.txt out.raw",
        "out.raw: sample 1: slot 'C' must have 1 keys, got",
    ),
    ("inspect cut.txt --schema in.txt.schema.yaml", "cut.txt:1: "),
    ("generate --samples 3 log", "`num_files` must be at least 1 and"),
    (
        "generate --format norm --nnz 1 log",
        "--nnz is for raw, but the format is norm",
    ),
]


@pytest.mark.parametrize("command, message", FAILURES)
def test_failures_are_one_line_and_leave_nothing(
    text, here, capsys, command, message
):
    (here / "empty").touch()
    (here / "junk").write_bytes(bytes(range(256)))
    (here / "folder").mkdir()
    (here / "other.txt").write_text(TEXT)
    (here / "cut.txt").write_text(TEXT[:20])
    (here / "in.csv").write_text("y,a\n1,2\n")
    before = names()
    assert failure(capsys, command).startswith(message)
    assert names() == before


def test_columns_in_doubt_are_listed_with_options_to_paste(here, capsys):
    (here / "in.csv").write_text('y,"a,b",say "c",d\n1,2,3,\n0,4,99999999,\n')
    run("convert --label=y --categorical=d in.csv out.txt", 2)
    said = capsys.readouterr()
    assert (said.out, names()) == ("", ["in.csv"])
    assert said.err == (
        "lodestar.data: in.csv: 2 rows leave several meanings for these "
        "columns:\n"
        "  'a,b': 2 distinct whole numbers in 2 values: 2, 4\n"
        "  'say \"c\"': 2 distinct whole numbers in 2 values: 3, 99999999, of "
        "which float32 does not hold 99999999\n"
        "Declare which are ids (--categorical), which are numbers (--numeric) "
        "and which to leave out (--ignore); a schema file (--schema) declares "
        "anything else. For example:\n"
        '  \'--categorical=d,"say ""c"""\' \'--numeric="a,b"\'\n'
    )
    options = shlex.split(said.err.splitlines()[-1])
    assert tool.main(["convert", "--label=y", *options, "in.csv", "o.txt"]) == 0
    spec = Schema.load("o.txt.schema.yaml")
    assert spec.names("sparse") == ['say "c"', "d"]
    assert spec.names("dense") == ["a,b"]


def test_a_column_in_doubt_that_needs_a_schema(here, capsys):
    days = pa.array([datetime.date(2026, 1, 31)])
    pq.write_table(pa.table({"day": days}), "in.parquet")
    run("inspect in.parquet", 2)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  'day': date32[day], which needs a unit",
        "Declare which are ids (--categorical), which are numbers (--numeric) "
        "and which to leave out (--ignore); a schema file (--schema) declares "
        "anything else. For example:",
        "  --ignore=day",
    ]


def test_messages_name_options_of_the_command_line(here, capsys):
    (here / "a.csv").write_text("city,land\nOslo,NO\n")
    assert failure(capsys, "inspect a.csv") == (
        "a.csv: line 1: may be a header or data: city, land; pass --header, or "
        "--no-header and --columns=A,B"
    )
    (here / "b.csv").write_text("# x\ny,a\n1,0.5\n0,1.5\n")
    assert failure(capsys, "inspect b.csv").endswith("pass --skip-lines=1")
    # Not an option, and not an option of the command line:
    for text in ("`dtype='uint64'`", "`label=1, rounded=True`", "`a b`"):
        assert tool.with_flags(text) == text


def test_notes_on_an_inferred_schema(here, capsys):
    table = pa.table({"a": [0.5], "b": [[[[1]]]]})
    pq.write_table(table, "in.parquet")
    run("convert in.parquet out.csv")
    label, unread = capsys.readouterr().err.splitlines()
    assert label.endswith("pass --label='COLUMN' to train.")
    assert unread.startswith("lodestar.data: Not read, for their types: 'b' (l")
    run("inspect in.parquet --json")
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert notes[1] == unread.removeprefix("lodestar.data: ")
    run("inspect in.parquet")
    assert capsys.readouterr().out.splitlines()[-2:] == notes


def test_text_options_of_another_format(here, capsys):
    (here / "in").write_text('{"a": 0.5}\n')
    assert failure(capsys, "inspect --skip-lines 1 in") == (
        "--skip-lines is for csv, tsv, but the format is jsonl."
    )


def test_ignored_columns_and_sample_weights(here, capsys):
    (here / "in.csv").write_text("y,w,a,b\n1,2,0.5,7\n0,1,1.5,8\n")
    run("convert --label=y --sample-weight=w --ignore=b in.csv out.txt")
    assert capsys.readouterr().out.startswith(
        "out.txt: 2 samples; columns: 1 label, 1 sample-weight, 1 dense; "
    )
    assert (here / "out.txt").read_text() == "1 1 1 2 1 0.5\n1 0 1 1 1 1.5\n"
    assert (
        "--ignore is for parquet, tfrecord, csv, tsv, arrow, jsonl"
        in failure(capsys, "inspect --ignore=b --format norm in.csv")
    )


def test_slots_of_several_inputs_must_agree(text, here, capsys):
    (here / "b.txt").write_text(TEXT)
    Schema([Column.label("z"), *list(SPEC)[1:]]).save("b.txt.schema.yaml")
    assert failure(capsys, "inspect in.txt b.txt").startswith(
        "b.txt.schema.yaml: differs from in.txt.schema.yaml; give"
    )


def test_formats_are_recognised_by_their_bytes(here, capsys):
    """The format does not depend on the file's name."""
    for check in ("sum", "none"):
        with NormWriter("file", SPEC, check=check) as writer:
            writer.write({"y": 1, "I": [1, 2], "C": [3]})
        SPEC.save("file.schema.yaml")
        run("inspect file")
        assert "1 samples in 1 file" in capsys.readouterr().out
    with MultiSlotWriter("file", SPEC) as writer:
        writer.write({"y": 1, "I": [1, 2], "C": [3]})
    run("inspect file")


@pytest.mark.parametrize(
    "name", ["multislot", "instant", "norm", "raw", "parquet", "csv"]
)
def test_generate(here, capsys, name):
    run(f"generate --samples=200 --files=2 --format {name} log")
    text = capsys.readouterr().out
    assert text.startswith("log: 200 samples in 2 files; best possible AUC 0.")
    found = sorted(os.listdir("log"))
    assert "part-00000.npy" in found and "schema.yaml" in found
    assert ("file_list.txt" in found) == (name in ("norm", "parquet"))
    run("inspect log")
    assert capsys.readouterr().out.startswith("200 samples in 2 files\ncolumn")


@pytest.mark.parametrize(
    "command",
    [
        *("bogus", "convert --to multislot", ""),
        "convert --limit 0 in.txt out.txt",
        "convert --files 0 in.txt out",
        "convert --out-delimiter= in.txt out.csv",
        "convert --numeric=a,,b in.csv out.txt",
        """convert --numeric="a in.csv out.txt""",
        "convert --row-group-size 0 in.txt out.parquet",
        "generate --samples 0 log",
        "generate --seed -1 log",
    ],
)
def test_unknown_errors_are_one_line(command, capsys):
    with pytest.raises(SystemExit) as error:
        tool.main(command.split())
    assert error.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("python -m lodestar.data")
    assert text.endswith(" See --help.\n") and text.count("\n") == 1


def test_unwritable_folder(text, here, capsys, monkeypatch):
    def rename(source, target, overwrite=False):
        raise tf.errors.PermissionDeniedError(None, None, "no rename")

    monkeypatch.setattr(tf.io.gfile, "rename", rename)
    before = names()
    assert failure(capsys, "convert in.txt out.csv") == (
        "out.csv: cannot be written: no rename"
    )
    assert names() == before


def process(command, **options):
    # TensorFlow logs as it does for a user who has not changed its settings.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.Popen(
        [sys.executable, "-m", "lodestar.data", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_a_process_fails_with_one_line_and_code_2(here):
    (here / "in.csv").write_text("y,a\n1,2\n?,3\n")
    started = process("convert --label=y --numeric=a in.csv out.txt")
    out, err = started.communicate()
    assert (started.returncode, out) == (2, "")
    assert err == (
        "lodestar.data: in.csv: line 3: column 'y': found a missing value, which "
        "it must not have unless the label is declared `optional=True`; "
        "--on-error='skip' leaves such rows out\n"
    )
    assert names() == ["in.csv"]


def test_control_c_leaves_nothing(here):
    started = process("generate --samples 100000000 log")
    deadline = time.monotonic() + 240
    while not list(here.glob("log/*.tmp-*")) and time.monotonic() < deadline:
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate()
    assert (started.returncode, out) == (130, "")
    assert err == "lodestar.data: interrupted\n"
    assert names() == []


def test_columns_of_csv_files_must_agree(here, capsys):
    (here / "a.csv").write_text("label,a\n1,2\n")
    (here / "b.csv").write_text("label,b\n1,2\n")
    assert failure(capsys, "convert --numeric=a a.csv b.csv out.txt") == (
        "b.csv: has no column 'a'; its columns are label, b"
    )


def test_a_batch_is_cut_where_files_end(here, rng):
    count = 5000  # more than one batch
    ids = rng.integers(0, 99, count)
    with MultiSlotWriter("in.txt", SPEC) as writer:
        writer.write_batch(
            {
                "y": ids % 2,
                "I": np.zeros((count, 2)),
                "C": (ids, np.arange(count + 1)),
            }
        )
    SPEC.save("in.txt.schema.yaml")
    run("convert in.txt out --to multislot --files 3")
    parts = [open(f"out/part-0000{i}.txt").read() for i in range(3)]
    assert "".join(parts) == (here / "in.txt").read_text()
    assert [part.count("\n") for part in parts] == [1666, 1667, 1667]
