"""Tests of examples/wide_deep/prepared.py: all formats become the same files."""

import argparse
import os
import signal

import numpy as np
import pytest
from wide_deep_command import FOLDER

from lodestar._data_tool import click_log
from lodestar.data import Column, DataError, Schema, open_writer
from lodestar.hugectr.file_list import write_file_list

# One id per column, so that Raw files can store them.
SCHEMA = Schema(
    [
        Column.label("label"),
        Column.dense("I", [2]),
        Column.sparse("C1", wide=True),
        Column.sparse("C2"),
        Column.one_hot("day", 7),
        Column.dense("aside", used=False),
    ]
)
KEYS = {"key_type": "int64"}
# Options of each format's writer and reader.
FORMATS = {
    "multislot": ({}, {}),
    "norm": (KEYS, KEYS),
    "raw": (KEYS | {"layout": "multi_hot_float"},) * 2,
    "parquet": ({"row_group_size": 300}, {}),
    "tfrecord": ({}, {}),
    "tsv": ({}, {}),
}


@pytest.fixture
def prepared(monkeypatch):
    """Imports the example's module."""
    monkeypatch.syspath_prepend(FOLDER)
    handler = signal.getsignal(signal.SIGINT)
    import prepared

    yield prepared
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def schema(tmp_path):
    """Writes the schema file."""
    SCHEMA.save(tmp_path / "all.yaml")
    return tmp_path / "all.yaml"


def squash(x):
    return np.sign(x) * np.log1p(np.abs(x))


def options(*data, **others):
    return argparse.Namespace(
        **{
            "data": list(data),
            "eval_data": None,
            "eval_fraction": 0.2,
            "format": None,
            "inference": {},
            "read": {},
            "schema": None,
            "seed": 0,
            **others,
        }
    )


def columns(seed, rows, first_id=10**12):
    rng = np.random.default_rng(seed)
    splits = np.arange(rows + 1)
    return {
        "label": np.arange(rows) % 2,
        "I": rng.normal(size=(rows, 2)).astype(np.float32),
        "C1": (rng.integers(0, 9, rows) + first_id, splits),
        "C2": (rng.integers(0, 50, rows), splits),
        "day": rng.integers(0, 7, rows),
        "aside": rng.normal(size=rows).astype(np.float32),
    }


def write(folder, name, stem, data, **more):
    path = folder / f"{stem}.{name}"
    options = FORMATS[name][0] | more
    with open_writer(path, SCHEMA, name, **options) as file:
        file.write_batch(data)
    return path


def contents(data):
    """Returns the samples and metadata of the prepared files."""
    texts = [
        (data.folder / name).read_text()
        for name in data.train_files + data.eval_files
    ]
    return texts, data.train_examples, data.eval_examples, data.mean


def test_every_format_becomes_the_same_files(prepared, tmp_path, schema):
    found = {}
    for name, (_, read) in FORMATS.items():
        files = [
            write(tmp_path, name, f"part-{i}", columns(i, 400 + i))
            for i in range(2)
        ]
        data = prepared.prepare(
            tmp_path / "out" / name,
            options(*files, schema=schema, read=read),
            squash,
        )
        assert data.train_examples + data.eval_examples == 801
        assert 100 < data.eval_examples < 220
        assert data.schema.names() == ["label", "I", "C1", "C2", "day"]
        found[name] = contents(data)
    for name, content in found.items():
        assert content == found["multislot"], name


def test_the_numbers_are_those_to_train_on(prepared, tmp_path, schema):
    train, evaluation = columns(0, 300), columns(1, 100)
    files = [
        write(tmp_path, "norm", f"{i}", columns)
        for i, columns in enumerate((train, evaluation))
    ]
    write_file_list(tmp_path / "train.txt", files[:1])
    given = options(
        tmp_path / "train.txt", eval_data=files[1:], schema=schema, read=KEYS
    )
    data = prepared.prepare(tmp_path / "data", given, squash)
    assert (data.train_examples, data.eval_examples) == (300, 100)
    values = squash(train["I"])
    np.testing.assert_allclose(data.mean, values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(data.variance, values.var(0), rtol=1e-5)
    assert int(data.train_dataset(128).cardinality()) == 3
    shuffled = data.train_dataset(300, shuffle=300, seed=1)
    for dataset, wanted, ordered in (
        (data.train_dataset(300), train, True),
        (shuffled, train, False),
        (data.eval_dataset(), evaluation, True),
    ):
        ((features, label),) = dataset
        ids = features["C1"].values.numpy()
        assert np.array_equal(ids, wanted["C1"][0]) == ordered
        assert sorted(ids) == sorted(wanted["C1"][0])
        assert label.numpy().sum() == wanted["label"].sum()


def test_a_folder_is_made_once(prepared, tmp_path, schema):
    file = write(tmp_path, "norm", "all", columns(0, 200))
    given = {"schema": schema, "read": KEYS}
    out = tmp_path / "out" / "data"
    made = prepared.prepare(out, options(file, **given), squash)
    os.utime(out / "train.txt", (0, 0))
    assert prepared.prepare(out, options(file, **given), squash) == made
    assert prepared.PreparedData.load(out) == made
    assert os.stat(out / "train.txt").st_mtime == 0
    for other in (
        {"seed": 1},
        {"eval_fraction": 0.3},
        {"eval_data": [file]},
        {"read": {"key_type": "uint32"}},
    ):
        with pytest.raises(DataError, match="Choose another --output"):
            prepared.prepare(out, options(file, **{**given, **other}), squash)
    write(tmp_path, "norm", "all", columns(0, 201))
    with pytest.raises(DataError, match="Choose another --output"):
        prepared.prepare(out, options(file, **given), squash)


def test_a_generated_log(prepared, tmp_path):
    given = options(examples=1200)
    given.data = None
    data = prepared.prepare(tmp_path / "data", given, squash)
    assert (data.train_examples, data.eval_examples) == (1000, 200)
    assert len(data.train_files) == 10 and len(data.eval_files) == 2
    log = click_log.generate_click_log(tmp_path / "log", 1200, 12, seed=0)
    assert data.best_auc == log.best_auc(-2)


@pytest.mark.parametrize(
    "schema, text, message",
    [
        ("label: [y, z]\nsparse: [C]\n", "", r"one label, got \['y', 'z'\]"),
        ("label: [y]\n", "1 1\n", "no feature besides the label"),
        ("label: [y]\nsparse: {C: float}\n", "", "'C', which holds any num"),
        ("label: [y]\ndense: {I: [-1]}\n", "", r"which has the shape \[-1\]"),
        ("label: [y]\ndense: [I]\n", "1 1 1 2\n1 0 1 nan\n",
         "example 2: column 'I' must be a finite number, got nan"),
        ("label: {y: float}\ndense: [I]\n",
         "1 0.5 1 1\n", "example 1: column 'y' must be 0 or 1, got 0.5"),
        ("label: [y]\ndense: [I]\n", "1 1 1 2\n" * 50, "all 9 labels to eval"),
        ("label: [y]\ndense: [I]\n", "1 1 1 2\n", "1 examples are too few"),
    ],
)  # fmt: skip
def test_columns_that_the_model_cannot_use(
    prepared, tmp_path, schema, text, message
):
    (tmp_path / "schema.yaml").write_text(schema)
    file = tmp_path / "in.txt"
    file.write_text(text or "1 1 1 5\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match=message) as error:
        prepared.prepare(tmp_path / "above" / "data", options(file), squash)
    assert str(error.value).startswith(str(file))
    assert sorted(tmp_path.iterdir()) == before
