"""Tests of the pieces into which data are divided for training threads."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, DataError, Schema, open_dataset
from lodestar.data.pieces import pieces_of

SPEC = Schema([Column.label("y"), Column.sparse("a")])


def write(path, ids):
    with lodestar.paddle.multislot_writer.MultiSlotWriter(
        str(path), SPEC
    ) as writer:
        for id in ids:
            writer.write({"y": 1, "a": [id]})
    return str(path)


def ids(dataset):
    return [x["a"].values.numpy().tolist() for x, _ in dataset]


@pytest.fixture
def files(tmp_path):
    return [
        write(tmp_path / name, range(10 * i + 1, 10 * i + 4))
        for i, name in enumerate("pqr")
    ]


def test_all_files_and_each_of_them(files):
    data = open_dataset(files, SPEC, 2)
    assert ids(data) == [[1, 2], [3, 11], [12, 13], [21, 22], [23]]
    pieces = pieces_of(data)
    assert [piece.name for piece in pieces] == files
    assert ids(pieces[1].open()) == [[11, 12], [13]]


def test_paths_for_a_command_are_not_expanded(files):
    command = ["sh", "-c", 'cat "${1#nowhere:/}"', "sh", "{path}"]
    data = open_dataset(
        [f"nowhere:/{path}" for path in files],
        SPEC,
        9,
        format="multislot",
        open_command=command,
    )
    pieces = pieces_of(data)
    assert pieces[0].name == f"nowhere:/{files[0]}"
    assert ids(pieces[1].open()) == [[11, 12, 13]]


def test_a_step_is_traced_once_for_all_files(files):
    first = open_dataset(files[:1], SPEC, 2)
    traces = []

    @tf.function
    def total(iterator):
        traces.append(1)
        return tf.reduce_sum(next(iterator)[0]["a"].values)

    for paths in (files[:1], files[1:], files):
        data = open_dataset(paths, SPEC, 2)
        assert data.element_spec == first.element_spec
        total(iter(data))
        for piece in pieces_of(data):
            total(iter(piece.open()))
    assert len(traces) == 1


def test_folders_and_options(files, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    paths = [write(folder / f"part-{i}", [i]) for i in (1, 2)]
    data = open_dataset(
        folder, SPEC, 4, format="multislot", drop_remainder=True
    )
    assert [piece.name for piece in pieces_of(data)] == paths
    assert [ids(piece.open()) for piece in pieces_of(data)] == [[], []]
    data = open_dataset(folder, SPEC, 1, shuffle_files=True, seed=5, repeat=3)
    assert ids(pieces_of(data)[1].open()) == [[2]] * 3


@pytest.mark.parametrize("prefetch", [0, 1])
def test_one_file_is_read_as_by_the_formats_dataset(files, prefetch):
    data = open_dataset(files, SPEC, 2, prefetch=prefetch)
    for file, piece in zip(files, pieces_of(data), strict=True):
        wanted = lodestar.paddle.multislot_dataset.MultiSlotDataset(
            file, SPEC, 2, prefetch=prefetch
        )
        found = piece.open()
        assert found.element_spec == wanted.element_spec
        for _ in range(2):
            assert ids(found) == ids(wanted)


def test_files_with_an_inferred_schema(tmp_path):
    for day in (1, 2):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        text = "click,ids,w\n" + f"1,a b,{day}\n0,c,2\n" * 20
        (folder / "part-0.csv").write_text(text)
    options = {"label": "click", "numeric": ["w", "day"], "verbose": False}
    data = open_dataset(tmp_path, batch_size=30, **options)
    found = [next(iter(piece.open()))[0] for piece in pieces_of(data)]
    wanted = [features for features, _ in data]
    assert [list(features) for features in found] == [list(wanted[0])] * 2
    for features, day in zip(found, (1, 2), strict=True):
        assert set(np.ravel(features["day"])) == {day}
        np.testing.assert_array_equal(
            features["ids"].values, wanted[0]["ids"].values
        )


def test_a_file_that_is_missing_or_bad_is_named(files, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("1 1 1 7\n1 1 1 x\n")
    for format in (None, "multislot"):
        first, second = pieces_of(
            open_dataset([files[0], bad], SPEC, 2, format=format)
        )
        assert ids(first.open())
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad}:2"):
            ids(second.open())
        pathlib.Path(files[0]).unlink()
        with pytest.raises((DataError, tf.errors.NotFoundError), match="/p"):
            ids(first.open())
        write(files[0], [1])


def test_data_without_pieces(files):
    data = open_dataset(files, SPEC, 2)
    assert pieces_of(data.take(1)) is None
    assert pieces_of([data, 3]) is None
    table = open_dataset(pa.table({"y": [1], "a": [[2]]}), SPEC, 2)
    assert pieces_of(table) is None
    for found in (pieces_of([data, data.take(1)]), pieces_of((data, data))):
        assert [piece.name for piece in found] == ["dataset 0", "dataset 1"]
    assert ids(pieces_of([data, data.take(1)])[1].open()) == [[1, 2]]
