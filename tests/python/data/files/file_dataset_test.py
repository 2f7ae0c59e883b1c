"""Tests of datasets whose list of files changes."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, DataError, FileDataset, Schema

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
    data = FileDataset(files, SPEC, 2)
    assert data.files == files
    assert ids(data.dataset()) == [[1, 2], [3, 11], [12, 13], [21, 22], [23]]
    assert ids(data.dataset(files[1])) == [[11, 12], [13]]


def test_paths_for_a_command_are_taken_as_they_are(files):
    command = ["sh", "-c", 'cat "${1#nowhere:/}"', "sh", "{path}"]
    data = FileDataset(
        [f"nowhere:/{path}" for path in files],
        SPEC,
        9,
        format="multislot",
        open_command=command,
    )
    assert data.files[0] == f"nowhere:/{files[0]}"
    assert ids(data.dataset(data.files[1])) == [[11, 12, 13]]


@pytest.mark.parametrize("given", [{"slots": SPEC}, {"format": "multislot"}])
def test_a_command_needs_slots_and_format(given):
    with pytest.raises(ValueError, match="needs `schema` and `format`"):
        FileDataset("nowhere:/p", batch_size=9, open_command=["cat"], **given)


def test_other_files_have_the_same_spec_and_leave_what_reads(files):
    data = FileDataset(files[:1], SPEC, 2)
    first = data.dataset()
    reading = iter(first)
    data.set_files(files[1:])
    assert data.files == files[1:]
    assert data.dataset().element_spec == first.element_spec
    assert [x["a"].values.numpy().tolist() for x, _ in reading] == [[1, 2], [3]]
    assert ids(data.dataset())[0] == [11, 12]
    traces = []

    @tf.function
    def total(iterator):
        traces.append(1)
        return tf.reduce_sum(next(iterator)[0]["a"].values)

    for list_ in (files[:1], files[1:], files):
        data.set_files(list_)
        total(iter(data.dataset()))
        total(iter(data.dataset(data.files[0])))
    assert len(traces) == 1


def test_folders_options_and_formats(files, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    paths = [write(folder / f"part-{i}", [i]) for i in (1, 2)]
    data = FileDataset(folder, SPEC, 4, format="multislot", drop_remainder=True)
    assert data.files == paths
    assert ids(data.dataset()) == []
    data = FileDataset(folder, SPEC, 1, shuffle_files=True, seed=5, repeat=3)
    assert sorted(np.ravel(ids(data.dataset()))) == [1, 1, 1, 2, 2, 2]


def test_no_file_changes_nothing(files, tmp_path):
    data = FileDataset(files, SPEC, 2)
    with pytest.raises(ValueError, match="`files` is empty"):
        data.set_files([])
    (tmp_path / "empty").mkdir()
    with pytest.raises((ValueError, DataError), match="empty"):
        data.set_files(tmp_path / "empty")
    assert data.files == files


@pytest.mark.parametrize("prefetch", [0, 1])
def test_one_file_is_read_as_by_the_formats_dataset(files, prefetch):
    data = FileDataset(files, SPEC, 2, prefetch=prefetch)
    for file in [*files, files[0]]:
        wanted = lodestar.paddle.multislot_dataset.MultiSlotDataset(
            file, SPEC, 2, prefetch=prefetch
        )
        found = data.dataset(file)
        assert found.element_spec == wanted.element_spec
        for _ in range(2):
            assert ids(found) == ids(wanted)


def test_files_with_slots_of_their_own(tmp_path):
    for name, slot in (("one", "a"), ("two", "b")):
        spec = Schema([Column.label("y"), Column.sparse(slot)])
        (tmp_path / name).mkdir()
        spec.save(tmp_path / name / "schema.yaml")
        (tmp_path / name / "part-0").write_text("1 1 1 5\n")
    data = FileDataset(tmp_path / "one", batch_size=1)
    for name, slot in (("one", "a"), ("two", "b"), ("one", "a")):
        data.set_files(tmp_path / name)
        assert list(data.dataset(data.files[0]).element_spec[0]) == [slot]


def test_a_file_that_is_missing_or_bad_is_named(files, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("1 1 1 7\n1 1 1 x\n")
    for format in (None, "multislot"):
        data = FileDataset(files, SPEC, 2, format=format)
        data.dataset(files[0])
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad}:2"):
            ids(data.dataset(bad))
        with pytest.raises((DataError, tf.errors.NotFoundError), match="none"):
            ids(data.dataset(tmp_path / "none"))
