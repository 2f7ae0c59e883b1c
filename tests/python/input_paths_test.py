"""Invalid paths and special files are refused before they are opened."""

import errno
import functools
import os
import pickle
import re

import pytest
import tensorflow as tf

from lodestar import data, hugectr, paddle
from lodestar._command_line import describe_error
from lodestar._data_tool import click_log
from lodestar._errors import reading
from lodestar.data import open_dataset
from lodestar.lookup import IdTable

SLOTS = data.Schema([data.Column.label("y"), data.Column.sparse("C")])


def read(path, make=paddle.multislot_dataset.MultiSlotDataset, **options):
    list(make(path, SLOTS, 2, **options))


READERS = {
    "multislot": read,
    "in memory": lambda path: read(path, mode="in_memory"),
    "piped": lambda path: read(path, pipe_command=["cat"]),
    "norm": lambda path: read(path, hugectr.norm_dataset.NormDataset),
    "raw": lambda path: read(path, hugectr.raw_dataset.RawDataset),
    "parquet": lambda path: read(path, open_dataset),
    "csv": lambda path: read(path, open_dataset, format="csv"),
    "slots": data.Schema.load,
    "file list": hugectr.file_list.read_file_list,
}
WRITERS = {
    "multislot": lambda path: paddle.multislot_writer.MultiSlotWriter(
        path, SLOTS
    ),
    "norm": lambda path: hugectr.norm_writer.NormWriter(path, SLOTS),
    "parquet": lambda path: data.open_writer(path, SLOTS, "parquet"),
    "slots": SLOTS.save,
    "file list": lambda path: hugectr.file_list.write_file_list(path, ["a"]),
    "click log": lambda path: click_log.generate_click_log(path, 10, 1),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Returns the working directory of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPENERS = {
    **{
        name: functools.partial(open_dataset, schema=SLOTS, format=name)
        for name in (
            *("csv", "parquet", "arrow", "jsonl", "tfrecord"),
            *("multislot", "instant", "norm", "raw"),
        )
    },
    "unknown format": lambda path, **size: open_dataset(path, **size),
    "with a schema": functools.partial(open_dataset, schema=SLOTS),
    "schema file": lambda path, **size: open_dataset("a.csv", path, **size),
}
OTHERS = {
    "slots": data.Schema.load,
    "file list": hugectr.file_list.read_file_list,
    "samples in memory": lambda path: paddle.InMemoryDataset(SLOTS, 2).load(
        path
    ),
    "generator": lambda path: paddle.MultiSlotGenerator().write(path, "out"),
    "data feed": lambda path: paddle.DataFeedDesc.read(path),
}


@pytest.mark.parametrize("path", ["none.csv", "none/a.gz"])
@pytest.mark.parametrize("name", [*OPENERS, *OTHERS])
def test_a_missing_file_is_an_error_of_the_system(name, path):
    with pytest.raises(FileNotFoundError) as raised:
        if name in OPENERS:
            OPENERS[name](path, batch_size=2)
        else:
            OTHERS[name](path)
    error = raised.value
    assert isinstance(error, data.DataError)
    assert (error.errno, error.filename) == (errno.ENOENT, path)
    assert str(error) == describe_error(error)
    assert str(error) == f"{path}: No such file or directory"
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (type(error), str(error))


def test_no_file_of_a_glob():
    with pytest.raises(FileNotFoundError, match="^none.*: no file matches$"):
        open_dataset("none*.csv", batch_size=2)


@pytest.mark.parametrize(
    "error, kind",
    [
        (PermissionError(errno.EACCES, "Permission denied"), PermissionError),
        (
            tf.errors.PermissionDeniedError(None, None, "a; Permission denied"),
            PermissionError,
        ),
        (
            tf.errors.NotFoundError(None, None, "a; No such file or directory"),
            FileNotFoundError,
        ),
        (OSError(errno.EIO, "Input/output error"), OSError),
    ],
)
def test_other_errors_of_the_system(error, kind):
    with pytest.raises(kind, match="^a: ") as raised:
        with reading("a"):
            raise error
    assert isinstance(raised.value, data.DataError)
    assert raised.value.filename == "a"
    assert str(raised.value).count("a: ") == 1


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_at_once(name):
    os.mkfifo("pipe.parquet")  # opening it would wait for a writer
    with pytest.raises((ValueError, tf.errors.OpError)) as error:
        READERS[name]("pipe.parquet")
    text = describe_error(error.value)
    assert re.fullmatch(r"pipe\.parquet: is a pipe, expected a file", text)
    with pytest.raises((ValueError, tf.errors.OpError), match="is a device"):
        READERS[name]("/dev/zero")


@pytest.mark.parametrize("name", READERS)
def test_a_path_is_not_cut_at_a_nul(here, name):
    (here / "in").write_text("1 1 0\n")
    with pytest.raises((ValueError, tf.errors.OpError)) as error:
        READERS[name]("in\0.txt")
    text = describe_error(error.value)
    assert text == r"in\0.txt: a path cannot hold a NUL"


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_to_a_path_with_a_nul(here, name):
    with pytest.raises(ValueError, match=r"out\\0\.txt: a path cannot hold"):
        WRITERS[name]("out\0.txt")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "path, message",
    [
        (b"caf\xe9.txt", r"caf\xe9.txt: a path must be UTF-8; rename the"),
        ("a\ud800", r"a\ud800: a path must be UTF-8; rename the"),
        ("", "a path must not be empty"),
    ],
)
@pytest.mark.parametrize("name", [*READERS, *WRITERS])
def test_a_path_that_tensorflow_cannot_open_is_named(here, name, path, message):
    with open(b"caf\xe9.txt", "w") as file:
        file.write("1 1 0\n")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        {**WRITERS, **READERS}[name](os.fsdecode(path))
    assert os.listdir(b".") == [b"caf\xe9.txt"]


def test_a_folder_with_a_name_that_is_not_utf8(here):
    (here / "folder").mkdir()
    with open(b"folder/caf\xe9", "w"):
        for make in (data.open_dataset, open_dataset):
            with pytest.raises(
                data.DataError, match=r"folder: holds b'caf\\xe9', whose name"
            ):
                make("folder", SLOTS, 2)


@pytest.mark.parametrize("files", [{"a.csv": 1}, None, 3, ["a.csv", None]])
def test_invalid_lists_of_paths_are_named(files):
    with pytest.raises(ValueError, match="must be a path or a list of paths"):
        data.open_dataset(files, SLOTS, 2)


def test_vocabulary_files_are_checked_too(here):
    (here / "in").write_text("a\n")
    for path, message in (("in\0", "cannot hold a NUL"), ("/dev/null", "is a")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            IdTable.from_file(path)


def test_a_file_by_its_scheme_is_read(here):
    (here / "in.txt").write_text("1 1 0\n")
    read(f"file://{here}/in.txt")
    os.mkfifo("pipe")
    with pytest.raises(tf.errors.OpError, match="pipe: is a pipe, expected"):
        read(f"file://{here}/pipe")
