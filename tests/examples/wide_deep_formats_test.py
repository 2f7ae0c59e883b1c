"""examples/wide_deep on every format: the same data give the same model."""

import json
import re

import numpy as np
import pytest
from processes import Interpreter
from wide_deep_command import entry, table

from lodestar.data import Column, Schema
from lodestar.data.arrow.csv_writer import CsvWriter
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.hugectr import NormWriter, RawWriter, write_file_list
from lodestar.paddle import MultiSlotWriter

# One id a slot, so that Raw files can hold them, too.
SLOTS = Schema(
    [
        Column.label("label"),
        Column.dense("I", [2]),
        Column.sparse("C1", wide=True),
        Column.sparse("C2"),
        Column.one_hot("day", 7),
        Column.dense("aside", used=False),
    ]
)
RAW = ("--layout", "multi_hot_float", "--key-type", "int64")
# Format -> its writer, the writer's options, those of the command line.
FORMATS = {
    "multislot": (MultiSlotWriter, {}, ()),
    "norm": (NormWriter, {"key_type": "int64"}, ("--key-type", "int64")),
    "raw": (
        RawWriter,
        {"layout": "multi_hot_float", "key_type": "int64"},
        RAW,
    ),
    "parquet": (ParquetWriter, {"row_group_size": 300}, ()),
    "tsv": (CsvWriter, {"delimiter": "\t"}, ()),
}


@pytest.fixture(scope="module")
def server():
    """The process that serves, one for all tests: TensorFlow starts slowly."""
    with Interpreter() as process:
        yield process


@pytest.fixture
def main(monkeypatch, server):
    """The example's entry in this process; gives the exit code."""
    yield from entry(monkeypatch, server)


@pytest.fixture
def schema(tmp_path):
    """The schema file."""
    SLOTS.save(tmp_path / "all.yaml")
    return tmp_path / "all.yaml"


def columns(seed, rows, first_id=10**12):
    """Clicks that a third of the ids of C1 and a number decide."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 9, rows)
    numbers = rng.normal(size=(rows, 2)).astype(np.float32)
    logits = np.where(ids < 3, 1.5, -1.5) + numbers[:, 0]
    splits = np.arange(rows + 1)
    return {
        "label": (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(int),
        "I": numbers,
        "C1": (ids + first_id, splits),
        "C2": (rng.integers(0, 50, rows), splits),
        "day": rng.integers(0, 7, rows),
        "aside": rng.normal(size=rows).astype(np.float32),
    }


def write(folder, name, stem, data, **more):
    writer, options, _ = FORMATS[name]
    path = folder / f"{stem}.{name}"
    with writer(path, SLOTS, **{**options, **more}) as file:
        file.write_batch(data)
    return path


def test_every_format_gives_the_same_result(main, tmp_path, schema, capsys):
    found = {}
    for name, (_, _, options) in FORMATS.items():
        files = [
            write(tmp_path, name, f"part-{i}", columns(i, 400 + i))
            for i in range(2)
        ]
        out = tmp_path / name
        arguments = ["--schema", schema, "--batch-size", 64, "--keep-order"]
        arguments += [*options, "--output", out]
        arguments += ["--data", *files]
        if name == "norm":  # in two parts
            assert main(*arguments, "--epochs", 1) == 0
            capsys.readouterr()
        assert main(*arguments, "--epochs", 2) == 0
        text = capsys.readouterr().out
        assert ("Resuming from" in text) == (name == "norm")
        printed = table(text)
        del printed["examples a second"]
        # A table that was restored has an index of another size.
        printed = {k: v.split(" ids, ")[0] for k, v in printed.items()}
        found[name] = printed
        data = json.loads((out / "data" / "data.json").read_text())["data"]
        assert data["format"] == ("multislot" if name == "tsv" else name)
        # Rows are trained on as they are; nothing else is made of them.
        held_out = {"schema.yaml", "data.json"} | {
            f"{part}-{i}.{data['format']}"
            for part in ("train", "eval")
            for i in range(2)
        }
        kept = {p.name for p in (out / "data").iterdir()}
        assert kept - {"_metadata.json"} == held_out
    assert float(found["multislot"]["AUC, held-out data"]) > 0.7
    for name, printed in found.items():
        assert printed == found["multislot"], name


def test_files_are_read_where_they_are(main, tmp_path, schema, capsys):
    for name in ("norm", "parquet"):
        files = [
            write(tmp_path, name, f"{i}", columns(i, 300)) for i in range(3)
        ]
        write_file_list(tmp_path / f"{name}.txt", map(str, files[:2]))
        out = tmp_path / f"{name}-out"
        arguments = ["--data", tmp_path / f"{name}.txt", "--schema", schema]
        arguments += ["--eval-data", files[2], *FORMATS[name][2]]
        assert main(*arguments, "--epochs", 1, "--output", out) == 0
        assert table(capsys.readouterr().out)["300 served scores"]
        data = json.loads((out / "data" / "data.json").read_text())["data"]
        assert data["train_files"] == list(map(str, files[:2]))
        assert data["eval_files"] == [str(files[2])]


def test_criteo_logs_need_no_options(main, tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        click = int(rng.integers(2))
        numbers = [str(rng.integers(-2, 99)) if rng.random() < 0.8 else ""
                   for _ in range(13)]  # fmt: skip
        ids = [f"{rng.integers(9):08x}" if rng.random() < 0.9 else ""
               for _ in range(25)]  # fmt: skip
        lines.append("\t".join([str(click), *numbers, *ids, f"{click:08x}"]))
    file = tmp_path / "train.tsv"
    file.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    assert main("--data", file, "--output", out, "--batch-size", 32) == 0
    assert float(table(capsys.readouterr().out)["AUC, held-out data"]) > 0.95


def test_an_output_is_of_one_way_to_read(main, tmp_path, schema, capsys):
    file = write(tmp_path, "norm", "all", columns(0, 200))
    arguments = ["--data", file, "--schema", schema, "--key-type", "int64"]
    arguments += ["--epochs", 1, "--output", tmp_path / "out"]
    assert main(*arguments) == 0
    for other in (["--key-type", "uint32"], ["--eval-fraction", "0.3"]):
        capsys.readouterr()
        assert main(*arguments, *other) == 2
        assert "name another --output" in capsys.readouterr().err


def test_parquet_without_slots(main, tmp_path, capsys):
    file = write(tmp_path, "parquet", "all", columns(0, 500))
    assert main("--data", file, "--epochs", 1, "--output", tmp_path / "a") == 0
    # What the schema does not tell: `day` is one id, `aside` is a number.
    text = (tmp_path / "a" / "data" / "schema.yaml").read_text()
    assert "day" in text and "aside" in text


def test_raw_keys_are_shifted_once(main, tmp_path, capsys):
    file = tmp_path / "all.raw"
    data = columns(0, 600, first_id=0)
    spec = Schema([s for s in SLOTS if s.kind != "one_hot"])
    data.pop("day")
    with RawWriter(file, spec) as writer:
        writer.write_batch(data)
    spec.save(f"{file}.schema.yaml")  # found beside the file
    arguments = ["--data", file, "--slot-size-array", "9,50", "--epochs", 1]
    arguments += ["--num-samples", 500]
    assert main(*arguments, "--output", tmp_path / "a") == 0
    found = table(capsys.readouterr().out)
    assert found["table 'deep', 32 wide"].startswith("59 ids")
    data = json.loads((tmp_path / "a" / "data" / "data.json").read_text())
    assert data["data"]["train_examples"] + data["data"]["eval_examples"] == 500
    assert main(*arguments[:3], "9,49", "--output", tmp_path / "b") == 2
    error = capsys.readouterr().err
    assert re.search(r"all\.raw: record \d+ at byte .*slot 'C2'", error)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("norm", (), "all.norm: record 0 at byte"),
        ("norm", ("--layout", "int"), "is norm, but `layout` is for raw"),
        ("norm", ("--label", "label"), "is norm, but `label` is for csv, tsv"),
        ("norm", ("--format", "parquet"), "all.norm: "),
        ("norm", ("--format", "raw"), "all.norm: its size is"),
        ("raw", ("--key-type", "int32"), "all.raw: its size is"),
        ("raw", ("--format", "norm"), "all.raw: "),
        ("parquet", ("--key-type", "int64"), "is parquet, but `key_type`"),
        ("multislot", ("--key-type", "int64"), "is multislot, but `key_type`"),
    ],
)
def test_options_that_do_not_fit(
    main, tmp_path, schema, name, options, message, capsys
):
    file = write(tmp_path, name, "all", columns(0, 200))
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "out"
    arguments = ["--data", file, "--schema", schema, *options]
    assert main(*arguments, "--output", out) == 2
    error = capsys.readouterr().err
    assert error.startswith("wide_deep: ") and error.count("\n") == 1
    assert message in error
    assert sorted(tmp_path.iterdir()) == before


def test_files_that_cannot_be_used_together(main, tmp_path, schema, capsys):
    norm = write(tmp_path, "norm", "all", columns(0, 200))
    text = write(tmp_path, "multislot", "all", columns(0, 200))
    out = ["--output", tmp_path / "out"]
    assert main("--data", norm, text, "--schema", schema, *out) == 2
    assert "is multislot, but" in capsys.readouterr().err
    assert main("--data", norm, *out) == 2
    assert (
        "all.norm: which slots? Give a schema file (slots, --schema); there is no"
        in capsys.readouterr().err
    )
    odd = tmp_path / "odd"
    odd.write_bytes(b"\0" * 9)
    assert main("--data", odd, "--schema", schema, *out) == 2
    assert f"{odd}: shows no format" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_label_of_any_dtype_is_0_or_1(main, tmp_path, capsys):
    spec = Schema(
        [Column.label("y", dtype="float", binary=False), Column.dense("I")]
    )
    file = tmp_path / "all.norm"
    with NormWriter(file, spec) as writer:
        writer.write_batch({"y": [0.0, 1.0, 0.5], "I": [0.0, 1.0, 2.0]})
    spec.save(tmp_path / "schema.yaml")
    assert main("--data", file, "--output", tmp_path / "out") == 2
    assert capsys.readouterr().err == (
        f"wide_deep: {file}: record 2: slot 'y': a value is 0.5, wanted 0 or 1\n"
    )
