"""prepare_files: files held out, looked through and kept, once."""

import errno
import json
import os
import pathlib
import threading

import numpy as np
import pytest

from lodestar.data import (
    Column,
    DataError,
    OtherFilesError,
    PreparedFiles,
    Schema,
    prepare_files,
    prepare_once,
    read_files,
)
from lodestar.hugectr import NormWriter
from lodestar.paddle import MultiSlotWriter

SPEC = Schema([Column.label("y"), Column.dense("I", [2]), Column.sparse("C")])


def columns(rows, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y": np.arange(rows) % 2,
        "I": rng.normal(size=(rows, 2)).astype(np.float32),
        "C": (rng.integers(0, 9, rows), np.arange(rows + 1)),
    }


def write(folder, name, rows, writer=MultiSlotWriter, seed=0):
    path = folder / name
    with writer(path, SPEC) as file:
        file.write_batch(columns(rows, seed))
    SPEC.save(folder / "schema.yaml")
    return path


def read(dataset):
    """All examples as tuples, in order."""
    return [
        (y, *numbers, *ids)
        for features, label in dataset
        for y, numbers, ids in zip(
            label.numpy().ravel().tolist(),
            features["I"].numpy().tolist(),
            features["C"].to_list(),
        )
    ]


def test_a_part_is_held_out_once(tmp_path):
    file = write(tmp_path, "all.txt", 200)
    made = prepare_files(tmp_path / "out" / "data", file, fraction=0.25, seed=3)
    train, held_out = read(made.train_dataset(16)), read(made.eval_dataset())
    assert len(train) == made.train_examples and len(train) > 100
    assert len(held_out) == made.eval_examples and len(held_out) > 20
    whole = prepare_files(tmp_path / "whole", file, eval_files=[file])
    assert sorted(train + held_out) == sorted(read(whole.train_dataset(7)))
    assert whole.train_files == whole.eval_files == [str(file)]
    assert int(made.train_dataset(16).cardinality()) == -(-len(train) // 16)
    shuffled = made.train_dataset(16, shuffle_rows=100, seed=1)
    assert read(shuffled) != train and sorted(read(shuffled)) == sorted(train)

    # The second call reads nothing: what it finds is of the first one.
    os.utime(made.train_files[0], (0, 0))
    again = prepare_files(
        tmp_path / "out" / "data", file, fraction=0.25, seed=3
    )
    assert again == made == PreparedFiles.load(tmp_path / "out" / "data")
    assert os.stat(made.train_files[0]).st_mtime == 0


def test_mean_and_variance_are_of_what_is_transformed(tmp_path):
    file = write(tmp_path, "all.txt", 100)
    values = columns(100)["I"].astype(np.float64)
    found = prepare_files(tmp_path / "a", file, eval_files=file)
    np.testing.assert_allclose(found.mean, values.mean(axis=0))
    np.testing.assert_allclose(found.variance, values.var(axis=0))
    found = prepare_files(
        tmp_path / "b", file, eval_files=file, transform=np.abs
    )
    np.testing.assert_allclose(found.mean, np.abs(values).mean(axis=0))


def test_csv_becomes_multislot_text(tmp_path):
    file = tmp_path / "in.csv"
    lines = [f"{i % 2},{i}.5,{'abc'[i % 3]}\n" for i in range(60)]
    file.write_text("label,price,word\n" + "".join(lines))
    made = prepare_files(tmp_path / "data", file)
    assert made.format == "multislot" and made.options == {}
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [
        "data.json", "eval-0.multislot", "schema.yaml", "train-0.multislot"
    ]  # fmt: skip
    assert made.describe_slots() == (
        "Label:    label\nNumbers:  price\nIds:      word"
    )
    file.write_text("label,price,word\n1,2,a\n")
    with pytest.raises(DataError, match=f"^{file}: 1 samples are too few"):
        prepare_files(tmp_path / "other", file)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "in.csv"]


def test_what_a_file_says_of_whole_files_is_not_said_of_parts(tmp_path):
    file = write(tmp_path, "all.norm", 90, NormWriter)
    made = prepare_files(tmp_path / "data", file, key_type="uint32")
    assert made.format == "norm" and made.options == {"key_type": "uint32"}
    assert made.train_examples + made.eval_examples == 90


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"fraction": 0.5},
        {"eval_files": "all.txt"},
        {"files": "part.txt"},
    ],
)
def test_a_folder_is_of_one_way_to_make_it(tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "part.txt", 50)
    write(tmp_path, "all.txt", 90)
    prepare_files("data", "all.txt")
    with pytest.raises(OtherFilesError, match="^data: was made of other data"):
        prepare_files("data", **{"files": "all.txt", **change})
    write(tmp_path, "all.txt", 91)
    with pytest.raises(OtherFilesError, match="^data: was made of other data"):
        prepare_files("data", "all.txt")


def test_folders_that_are_no_such_ones(tmp_path):
    with pytest.raises(OtherFilesError, match="holds no prepared files"):
        PreparedFiles.load(tmp_path)
    with pytest.raises(OtherFilesError, match="holds no data of this program"):
        prepare_once(tmp_path, {}, lambda folder: None)
    about = tmp_path / "data.json"
    for text, message in (("{", "is no JSON"), ("{}", "was not written by")):
        about.write_text(text)
        with pytest.raises(DataError, match=f"^{about}: {message}"):
            prepare_once(tmp_path, {}, lambda folder: None)
    with pytest.raises(DataError, match="data.json: cannot be written: Not a"):
        prepare_once(about / "data", {}, lambda folder: None)


def test_files_made_by_a_function(tmp_path):
    def make(folder):
        files = [str(write(folder, f"{i}.txt", 40, seed=i)) for i in range(2)]
        return read_files(
            files[:1], files[1:], folder / "schema.yaml", metadata={"best": 1}
        )

    made = prepare_once(tmp_path / "data", {"sizes": (1, 2)}, make)
    assert made.metadata == {"best": 1}
    assert made.train_files == [str(tmp_path / "data" / "0.txt")]
    assert len(read(made.eval_dataset())) == 40
    assert prepare_once(tmp_path / "data", {"sizes": (1, 2)}, None) == made
    about = json.loads((tmp_path / "data" / "data.json").read_text())
    assert about["data"]["eval_files"] == ["1.txt"]

    def fail(folder):
        make(folder)
        raise ValueError("no more")

    with pytest.raises(DataError, match="^no more$"):
        prepare_once(tmp_path / "above" / "data", {}, fail)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_two_that_make_a_folder_at_once(tmp_path):
    """The second one waits, and finds what the first one has made."""
    (tmp_path / "data.partial" / "data").mkdir(parents=True)
    (
        tmp_path / "data.partial" / "data" / "of a process that was killed"
    ).touch()
    found = []

    def second():
        found.append(prepare_once(tmp_path / "data", {}, None))

    thread = threading.Thread(target=second)

    def make(folder):
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        files = [write(folder, f"{i}.txt", 40, seed=i) for i in range(2)]
        return read_files(files[:1], files[1:], folder / "schema.yaml")

    made = prepare_once(tmp_path / "data", {}, make)
    thread.join()
    assert found == [made]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [
        "0.txt", "1.txt", "data.json", "schema.yaml"
    ]  # fmt: skip


def test_another_one_removes_its_folder_as_this_one_asks_for_it(
    tmp_path, monkeypatch
):
    mkdir = pathlib.Path.mkdir
    there = [tmp_path / "data.partial"]

    def first(path, *arguments, **options):
        if path in there:
            there.clear()
            raise FileExistsError(errno.EEXIST, "File exists")
        mkdir(path, *arguments, **options)

    def make(folder):
        files = [write(folder, f"{i}.txt", 40, seed=i) for i in range(2)]
        return read_files(files[:1], files[1:], folder / "schema.yaml")

    monkeypatch.setattr(pathlib.Path, "mkdir", first)
    prepare_once(tmp_path / "data", {}, make)
    assert not there and [p.name for p in tmp_path.iterdir()] == ["data"]
    (tmp_path / "other.partial").touch()
    with pytest.raises(DataError, match="cannot be written: File exists"):
        prepare_once(tmp_path / "other", {}, make)


@pytest.mark.parametrize(
    "schema, text, message",
    [
        ("label: [y, z]\nsparse: [C]\n", "", r"label slot of 0 and 1, found \['y"),
        ("label: [y]\n", "1 1\n", "no feature slot beside the label"),
        ("label: [y]\nsparse: {C: float}\n", "", "'C' is of float, wanted ids"),
        ("label: [y]\ndense: {I: [-1]}\n", "", r"the shape \[-1\], wanted a fix"),
        ("label: [y]\ndense: [I]\n", "1 1 1 nan\n", ":1: slot 'I': a value is na"),
        ("label: [y]\ndense: [I]\n", "1 1 1 2\n" * 50, ": all 9 labels to eval"),
    ],
)  # fmt: skip
def test_what_no_model_of_clicks_takes(tmp_path, schema, text, message):
    (tmp_path / "schema.yaml").write_text(schema)
    file = tmp_path / "in.txt"
    file.write_text(text or "1 1 1 5\n")
    with pytest.raises(DataError, match=message) as error:
        prepare_files(tmp_path / "data", file)
    assert str(error.value).startswith(str(file))
    assert not (tmp_path / "data").exists()
