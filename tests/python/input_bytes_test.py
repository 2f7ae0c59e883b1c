r"""Every text reader sees exact bytes, including `\r`, compressed or not."""

import ast
import csv
import gzip
import io
import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from text_ids import hash_ids

import lodestar
from lodestar._data_tool.command import main
from lodestar._errors import DataError
from lodestar._input_bytes import open_input
from lodestar.data import Column, Schema, open_dataset
from lodestar.hugectr.file_list import read_file_list, write_file_list
from lodestar.paddle import MultiSlotGenerator

NAMES = ["text", "text.gz", "ram://text", "ram://text.gz"]
NUMBERS = itertools.count()
CONTENT = b"a\r\nb\rc\n\r\n\rd\n\n e\r"
LINES = [b"a\r\n", b"b\rc\n", b"\r\n", b"\rd\n", b"\n", b" e\r"]


@pytest.fixture(params=NAMES)
def put(request, tmp_path):
    """Writes bytes to a file with the given name; returns the path."""
    scheme, _, name = request.param.rpartition("://")
    # TensorFlow's "ram" file system keeps the old bytes of a rewritten file.
    folder = f"ram://input_bytes_{next(NUMBERS)}" if scheme else str(tmp_path)
    path = f"{folder}/{name}"

    def write(content, suffix=""):
        target = path
        if suffix:
            target = path.removesuffix(".gz") + suffix
            target += ".gz" * path.endswith(".gz")
        if target.endswith(".gz"):
            content = gzip.compress(content)
        with tf.io.gfile.GFile(target, "wb") as file:
            file.write(content)
        return target

    return write


def test_lines_are_exact(put):
    path = put(CONTENT)
    with open_input(path) as file:
        assert list(file) == LINES
    with open_input(path) as file:
        assert file.read(3) + file.readline() + file.read() == CONTENT


def test_a_line_of_any_length(put):
    long = b"x" * 1_000_000 + b"\r" + b"y" * 1_000_000
    with open_input(put(long + b"\n" + long)) as file:
        assert list(file) == [long + b"\n", long]


CSV = b'label,c\r\n0,"x\rz"\n1,"x\r\nz"\r\n0,"x\nz"\r\n1,xz\r\n0," \ry\r "\n'
CELLS = ["x\rz", "x\r\nz", "x\nz", "xz", "y"]


def test_cells_of_csv_keep_their_carriage_returns(put):
    path = put(CSV, ".csv")
    # As the csv module, and with it pandas, reads it.
    text = io.StringIO(CSV.decode(), newline="")
    rows = [[f.strip() for f in row] for row in csv.reader(text)]
    assert rows[1:] == [[str(i % 2), cell] for i, cell in enumerate(CELLS)]
    ((features, _),) = open_dataset(path, batch_size=8)
    np.testing.assert_array_equal(features["c"].values, hash_ids("c", CELLS))


def test_pandas_reads_the_same_cells(tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "a.csv").write_bytes(CSV)
    frame = pandas.read_csv(tmp_path / "a.csv", skipinitialspace=True)
    assert [cell.strip() for cell in frame["c"]] == CELLS


def test_a_carriage_return_outside_of_quotes_ends_a_line(put):
    path = put(b"label,c\r0,x\r1,y\r\n0,z\n", ".csv")
    ((features, labels),) = open_dataset(path, batch_size=8)
    assert labels.numpy().tolist() == [[0], [1], [0]]
    wanted = hash_ids("c", ["x", "y", "z"])
    np.testing.assert_array_equal(features["c"].values, wanted)
    path = put(b"label,c\n0,x\n1,x\rz\n", "2.csv")
    dataset = open_dataset(path, batch_size=8, delimiter=",")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="line 4: found 1 fields, expected 2",
    ):
        list(dataset)


def test_conversion_does_not_depend_on_compression(put, tmp_path):
    path = put(CSV, ".csv")
    out = tmp_path / "out.txt"
    assert main(["convert", path, str(out), "--categorical", "c"]) == 0
    ids = [int(line.split()[-1]) for line in out.read_text().splitlines()]
    np.testing.assert_array_equal(
        np.array(ids, np.uint64).view(np.int64), hash_ids("c", CELLS)
    )


class Seen(MultiSlotGenerator):
    """Stores the lines it gets."""

    def generate_sample(self, line):
        self.seen.append(line)
        yield [("C", [1])]


def test_a_generator_gets_complete_lines(put, tmp_path):
    generator = Seen(schema=Schema([Column.sparse("C")]))
    generator.seen = []
    path = put(CONTENT)
    assert generator.write(path, tmp_path / "out") == len(LINES)
    assert [line.encode() for line in generator.seen] == LINES
    generator.seen = []
    list(generator.dataset(path, 2))
    assert [line.encode() for line in generator.seen] == LINES


CRITEO = "\t".join(["1", *["5"] * 13, *["68fd1e64"] * 26])


def test_logs_of_criteo_are_known_compressed_too(put):
    path = put(f"{CRITEO}\r\n{CRITEO}\r\n".encode())
    ((features, labels),) = open_dataset(path, batch_size=8)
    assert labels.numpy().tolist() == [[1], [1]]
    assert features["C26"].to_list() == [hash_ids("C26", ["68fd1e64"])] * 2


def test_slot_files_and_file_lists_of_any_name(put, tmp_path):
    spec = Schema([Column.label("y"), Column.sparse("C")])
    (tmp_path / "plain.yaml").write_bytes(b"")
    spec.save(tmp_path / "plain.yaml")
    text = (tmp_path / "plain.yaml").read_bytes().replace(b"\n", b"\r\n")
    assert Schema.load(put(text, ".yaml")) == spec
    names = [str(tmp_path / "a\rb"), str(tmp_path / "c")]
    for name in names:
        pathlib.Path(name).write_bytes(b"")
    text = "\r\n".join(["2", *names, ""]).encode()
    assert read_file_list(put(text, ".list")) == names


@pytest.mark.parametrize("name", ["list.txt", "list.txt.gz"])
def test_written_files_are_read_back(tmp_path, name):
    spec = Schema([Column.label("y"), Column.sparse("C")])
    spec.save(tmp_path / name)
    assert Schema.load(tmp_path / name) == spec
    write_file_list(tmp_path / name, [tmp_path / name])
    assert read_file_list(tmp_path / name) == [str(tmp_path / name)]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "a.gz"
    for content in (b"no gzip", gzip.compress(b"a\nb\n")[:-9]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="a.gz: "):
            with open_input(path) as file:
                file.read()
    with pytest.raises(FileNotFoundError, match="missing"):
        open_input(tmp_path / "missing")


def test_nothing_else_opens_files_to_read_text():
    """Other modules use `GFile` only to write, or to read binary data."""
    root = pathlib.Path(lodestar.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("GFile", "GzipFile")
    }
    assert found == {
        "_files.py",
        "callbacks/tensorboard.py",
        "data/arrow/parquet_file.py",
        "data/arrow/file_source.py",
        "data/arrow/example_writer.py",
        "_input_bytes.py",
        "schema/model_schema.py",
        "paddle/sample_exchange.py",
        "export/features_json.py",
        "snapshot/copying.py",
        "warm_start.py",
    }
