"""Files truncated at every byte, before and during reading."""

import gzip
import os
import warnings

import numpy as np
import pytest
import tensorflow as tf

from lodestar._data_tool.command import main
from lodestar._errors import DataError
from lodestar.data import Column, Schema, open_dataset
from lodestar.data.arrow.example_source import ExampleSource
from lodestar.data.arrow.example_writer import ExampleWriter
from lodestar.data.arrow.parquet_file import ParquetFile
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.data.arrow.row_source import read_rows
from lodestar.data.binding import bind
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle import MultiSlotGenerator
from lodestar.paddle.instant_dataset import InstantDataset
from lodestar.paddle.instant_writer import InstantWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema([Column.label("y"), Column.dense("I"), Column.sparse("C")])
ROWS = 2


class Lines(MultiSlotGenerator):
    """One sample per line."""

    def generate_sample(self, line):
        yield [("y", [1]), ("I", [0.5]), ("C", [len(line)])]


def write(path, writer, rows=ROWS, **options):
    with writer(path, SPEC, **options) as out:
        for i in range(rows):
            out.write({"y": i % 2, "I": i / 2, "C": [i + 1]})
    return path


def csv_file(path, rows=ROWS):
    text = "y,I,C\n" + "".join(
        f"{i % 2},{i / 2},{i + 1}\n" for i in range(rows)
    )
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(text.encode())
    return path


def opener(make):
    """Returns a function that reads a path by a dataset that is traced once."""
    spec = {}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def variant(path):
        dataset = make(path)
        spec["element"] = dataset.element_spec
        return tf.data.experimental.to_variant(dataset)

    def read(path):
        dataset = tf.data.experimental.from_variant(
            variant(str(path)), spec["element"]
        )
        return sum(len(features["I"]) for features, _ in dataset)

    return read


def tfrecords(path):
    source = ExampleSource(str(path))
    for group in range(len(source.row_groups)):
        read_rows(source, group, bind(SPEC), ())
    return source.num_rows


def csv_rows(path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        dataset = open_dataset(path, SPEC, 2, prefetch=0)
        count = sum(len(features["I"]) for features, _ in dataset)
    # A file that may be truncated causes a warning, and an error of `validate`.
    return None if any("cut short" in str(w.message) for w in caught) else count


def generated(path):
    return Lines(schema=SPEC).write(path, path.parent / "out.txt")


NORM = opener(lambda p: NormDataset(p, SPEC, 2))
# For each format: its writer, a function that counts its samples, and whether a
# file that ends at a sample boundary cannot be told from a complete one.
READERS = {
    "multislot": (
        lambda p: write(p, MultiSlotWriter),
        opener(lambda p: MultiSlotDataset(p, SPEC, 2)),
        True,
    ),
    "instant": (
        lambda p: write(p, InstantWriter),
        opener(lambda p: InstantDataset(p, SPEC, 2)),
        True,
    ),
    "norm": (lambda p: write(p, NormWriter), NORM, False),
    "norm without checksums": (
        lambda p: write(p, NormWriter, check="none"),
        NORM,
        False,
    ),
    "raw": (
        lambda p: write(p, RawWriter),
        opener(lambda p: RawDataset(p, SPEC, 2)),
        True,
    ),
    "raw of a known size": (
        lambda p: write(p, RawWriter),
        opener(lambda p: RawDataset(p, SPEC, 2, num_samples=ROWS)),
        False,
    ),
    "tfrecord": (lambda p: write(p, ExampleWriter), tfrecords, True),
    "csv": (csv_file, csv_rows, True),
    "generator": (lambda p: write(p, MultiSlotWriter), generated, True),
}
ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    DataError,
)


# A generator accepts any lines.
@pytest.mark.parametrize("name", sorted({*READERS} - {"generator"}))
def test_a_file_that_is_cut_at_any_byte(tmp_path, name):
    make, read, may_end = READERS[name]
    data = make(tmp_path / "whole").read_bytes()
    assert read(tmp_path / "whole") == ROWS
    path = tmp_path / "cut"
    ends = set()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        try:
            count = read(path)
        except ERRORS as error:
            assert str(path) in str(error), size
        else:
            if count is not None:
                ends.add((count, size))
    if not may_end:
        assert not ends
        return
    # One size for each number of complete samples.
    counts = sorted(count for count, _ in ends)
    assert counts in ([0, 1], [1])


# Without compression, the content is the file's bytes.
@pytest.mark.parametrize(
    "name, level",
    [
        ("multislot", 0),
        ("multislot", 9),
        ("norm", 0),
        ("csv", 0),
        ("generator", 0),
    ],
)
def test_a_compressed_file_that_is_cut_at_any_byte(tmp_path, name, level):
    make, read, _ = READERS[name]
    content = make(tmp_path / "whole").read_bytes()
    data = gzip.compress(content, level)
    path = tmp_path / "cut.gz"
    path.write_bytes(data)
    assert read(path) == ROWS
    for size in range(1, len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ERRORS) as error:
            read(path)
        assert str(path) in str(error.value), size
        assert "too few" not in str(error.value), size


def test_a_parquet_file_that_is_cut_at_any_byte(tmp_path):
    data = write(tmp_path / "whole.parquet", ParquetWriter).read_bytes()
    path = tmp_path / "cut.parquet"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(DataError) as error:
            ParquetFile(str(path))
        assert str(path) in str(error.value), size


@pytest.mark.parametrize("size", [5, 12, -1])
@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_a_cut_tfrecord_file_is_an_error_of_all_that_read_it(
    tmp_path, name, size, capsys
):
    path = write(tmp_path / name, ExampleWriter)
    second = write(tmp_path / f"second.{name}", ExampleWriter, rows=1)
    content = path.read_bytes()
    if size > 0:  # within the second record
        more = second.read_bytes()[:size]
        path.write_bytes(content + more)
    else:
        path.write_bytes(content[:size])
    with pytest.raises(ERRORS) as error:
        list(open_dataset(path, SPEC, 2))
    assert str(path) in str(error.value)
    SPEC.save(tmp_path / "schema.yaml")
    assert main(["validate", str(path)]) == 1
    assert f"{path}" in "".join(capsys.readouterr())
    assert main(["convert", str(path), str(tmp_path / "out.txt")]) == 2
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("size", [5, 15, -3])
def test_validate_reports_a_cut_compressed_file(tmp_path, size, capsys):
    SPEC.save(tmp_path / "schema.yaml")
    made = {
        "a.txt.gz": MultiSlotWriter,
        "a.norm.gz": NormWriter,
        "a.raw.gz": RawWriter,
        "a.tfrecord.gz": ExampleWriter,
    }
    for name, writer in made.items():
        path = write(tmp_path / name, writer)
        path.write_bytes(path.read_bytes()[:size])
        assert main(["validate", str(path)]) == 1, name
        assert (
            f"{path}: the compressed file was truncated"
            in capsys.readouterr().out
        )


def test_members_of_a_compressed_file_are_read_on(tmp_path):
    write(tmp_path / "one", MultiSlotWriter)
    member = gzip.compress((tmp_path / "one").read_bytes())
    path = tmp_path / "all.gz"
    path.write_bytes(member * 3)
    read = READERS["multislot"][1]
    assert read(path) == 3 * ROWS
    path.write_bytes(member * 2 + b"other")
    with pytest.raises(tf.errors.OpError) as error:
        read(path)
    assert str(path) in str(error.value)


def big(path, writer, **options):
    """Writes a file, one with half of its samples, and one with more."""
    count = 12_000  # more than is read ahead, at 300 bytes each
    columns = {
        "y": np.arange(count) % 2,
        "I": np.arange(count, dtype=np.float32),
        "C": (
            10**6 + np.arange(40 * count),
            np.arange(0, 40 * count + 1, 40),
        ),
    }
    for name, times in (("half", 1), (path.name, 2), ("more", 3)):
        with writer(path.parent / name, SPEC, **options) as out:
            for _ in range(times):
                out.write_batch(columns)
    return path


def half(path):
    os.truncate(path, os.path.getsize(path.parent / "half"))


def more(path):
    with open(path, "ab") as file:
        file.write((path.parent / "more").read_bytes()[path.stat().st_size :])


def same_size(path):
    """Replaces the content by another of the same size."""
    with open(path, "r+b") as file:
        file.write(file.read(1))
    os.utime(path, (1, 1))


GROWING = {
    "multislot": (MultiSlotWriter, MultiSlotDataset, {}),
    "multislot of a command": (
        MultiSlotWriter,
        MultiSlotDataset,
        {"pipe_command": ["cat"]},
    ),
    "multislot in free order": (
        MultiSlotWriter,
        MultiSlotDataset,
        {"deterministic": False},
    ),
    "tfrecord": (ExampleWriter, open_dataset, {}),
}


@pytest.mark.parametrize(
    "name, change",
    [
        ("multislot", half),
        ("multislot", more),
        ("multislot", same_size),
        ("multislot of a command", half),
        ("multislot in free order", more),
        ("tfrecord", half),
        ("tfrecord", more),
    ],
)
def test_a_file_that_changes_while_it_is_read(
    tmp_path, name, change, monkeypatch
):
    # Data already in memory do not change, so a block must be smaller than the
    # file.
    monkeypatch.setattr(ExampleSource, "_block_bytes", 1)
    writer, make, options = GROWING[name]
    path = big(tmp_path / "a", writer)
    size = path.stat().st_size
    iterator = iter(make(path, SPEC, 400, prefetch=0, **options))
    next(iterator)
    change(path)
    with pytest.raises(tf.errors.OpError) as error:
        for _ in iterator:
            pass
    text = str(error.value)
    assert f"{path}: changed" in text
    now = path.stat().st_size
    assert f"{now} bytes" in text
    if change is not same_size:
        assert f"it had {size} bytes" in text


def test_a_file_removed_during_reading_is_read_completely(tmp_path):
    path = big(tmp_path / "a", MultiSlotWriter)
    iterator = iter(MultiSlotDataset(path, SPEC, 1000, prefetch=0))
    next(iterator)
    path.unlink()
    assert sum(1 for _ in iterator) == 23


@pytest.mark.parametrize("rows", [19, 21])
def test_reading_does_not_resume_in_a_file_of_another_size(tmp_path, rows):
    path = write(tmp_path / "a", MultiSlotWriter, rows=20)

    def opened():
        return iter(MultiSlotDataset(path, SPEC, 4, prefetch=0))

    iterator = opened()
    next(iterator), next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert sum(1 for _ in again) == 3
    size = path.stat().st_size
    write(path, MultiSlotWriter, rows=rows)
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(saved)
    with pytest.raises(tf.errors.OpError, match="cannot resume") as error:
        list(again)  # some batches may have been saved
    assert f"{path}: has {path.stat().st_size} bytes" in str(error.value)
    assert f"had {size} " in str(error.value)


def test_reading_resumes_before_a_file_that_has_changed(tmp_path):
    paths = [write(tmp_path / n, MultiSlotWriter, rows=8) for n in "ab"]

    def opened():
        return iter(MultiSlotDataset(paths, SPEC, 4, prefetch=0))

    iterator = opened()
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    write(paths[1], MultiSlotWriter, rows=12)
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert sum(1 for _ in again) == 4


def test_a_compressed_file_with_less_content_of_the_same_size(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(
        gzip.compress(b"n\n" + b"".join(b"%d\n" % i for i in range(999)))
    )
    opened = path.stat()
    dataset = open_dataset(path, [Column.sparse("n")], 100)
    less = gzip.compress(b"n\n1\n2\n")
    path.write_bytes(less.ljust(opened.st_size, b"\0"))
    os.utime(path, ns=(opened.st_atime_ns, opened.st_mtime_ns))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="a.csv.gz: found 6 bytes, expected",
    ):
        list(dataset)
