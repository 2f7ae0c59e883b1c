"""SampleWriter: the behavior that the writers of all formats share."""

import gc
import gzip

import numpy as np
import pytest
import tensorflow as tf

from lodestar._files import AtomicFile
from lodestar.data import Column, Schema
from lodestar.paddle.multislot_writer import MultiSlotWriter
from lodestar.ragged import LoDTensor

SPEC = Schema([Column.label("click"), Column.sparse("C1")])
COLUMNS = {"click": [1, 0], "C1": ([7, 8, 9], [0, 1, 3])}


def read(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "column",
    [
        LoDTensor.from_lengths([7, 8, 9], [[1, 2]]),
        LoDTensor.from_lengths([[7], [8], [9]], [[1, 2]]),
        tf.ragged.constant([[7], [8, 9]], dtype=tf.int32),
        (np.uint64([7, 8, 9]), np.int32([0, 1, 3])),
    ],
    ids=["lod", "lod_of_width_1", "ragged", "pair"],
)
def test_forms_of_a_sparse_column(tmp_path, column):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write_batch({"click": [1, 0], "C1": column})
    assert (tmp_path / "file").read_text() == "1 1 1 7\n1 0 2 8 9\n"


def test_two_levels_are_an_error(tmp_path):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write_batch(COLUMNS)
        with pytest.raises(
            ValueError,
            match="sample 3: slot 'C1' must be a LoDTensor of 1 level, got 2",
        ):
            two = LoDTensor.from_lengths([7, 8, 9], [[1, 1], [1, 2]])
            writer.write_batch({"click": [1, 0], "C1": two})
        with pytest.raises(ValueError, match="slot 'C1' has .* of rank not 1"):
            wide = LoDTensor.from_lengths([[7, 7], [8, 8]], [[1, 1]])
            writer.write_batch({"click": [1, 0], "C1": wide})


def test_labels_as_datasets_yield_them(tmp_path):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write_batch({"click": tf.constant([[1.0], [0.0]])})
        for bad in (0.5, np.nan, np.inf):
            with pytest.raises(
                ValueError,
                match="sample 3: slot 'click' must be a whole number",
            ):
                writer.write({"click": bad})
    assert (tmp_path / "file").read_text() == "1 1 0\n1 0 0\n"


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_scheme_that_is_not_local(name):
    path = f"ram://sample_writer_test/{name}"
    for _ in range(2):  # the second time it replaces the first file
        with MultiSlotWriter(path, SPEC) as writer:
            writer.write_batch(COLUMNS)
    data = read(path)
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    assert data == b"1 1 1 7\n1 0 2 8 9\n"
    with pytest.raises(KeyboardInterrupt):
        with MultiSlotWriter(path, SPEC):
            raise KeyboardInterrupt
    assert tf.io.gfile.listdir("ram://sample_writer_test").count(name) == 1


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_discarded_file_is_not_restored(tmp_path, name):
    writer = MultiSlotWriter(tmp_path / name, SPEC)
    writer.write_batch(COLUMNS)
    writer.discard()
    assert names(tmp_path) == []
    writer.discard()
    writer.close()
    with pytest.raises(ValueError, match=f"{name}: the writer is closed"):
        writer.write_batch(COLUMNS)
    del writer
    gc.collect()
    assert names(tmp_path) == []


def test_close_may_be_called_within_the_block(tmp_path):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write_batch(COLUMNS)
        writer.close()
        with pytest.raises(ValueError, match="file: the writer is closed"):
            writer.write({"click": 1})
    assert names(tmp_path) == ["file"]
    writer.discard()
    assert names(tmp_path) == ["file"]


class _Failing(MultiSlotWriter):
    """Fails after part of a batch."""

    def _put(self, columns, begin, end):
        self._file.write(b"part of")
        raise tf.errors.ResourceExhaustedError(None, None, "disk full")


def test_a_batch_that_is_half_written_is_dropped(tmp_path):
    path = tmp_path / "file"
    path.write_text("older")
    with _Failing(path, SPEC) as writer:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="disk full"):
            writer.write_batch(COLUMNS)
        with pytest.raises(ValueError, match="the writer is closed"):
            writer.write_batch(COLUMNS)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "older"


@pytest.mark.parametrize("name", ["file", "file.gz"])
@pytest.mark.parametrize("scheme", ["", "ram:/"])
def test_a_header_written_last(tmp_path, scheme, name):
    path = f"{scheme}{tmp_path}/{name}"
    tf.io.gfile.makedirs(f"{scheme}{tmp_path}")
    file = AtomicFile(path, header_size=4)
    content = bytes(range(256)) * 40_000  # more than one block of a copy
    file.write(content)
    file.commit(b"head")
    data = read(path)
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    assert data == b"head" + content
    assert tf.io.gfile.listdir(f"{scheme}{tmp_path}") == [name]
    file = AtomicFile(path, header_size=4)
    file.write(content)
    file.discard()
    assert tf.io.gfile.listdir(f"{scheme}{tmp_path}") == [name]


def test_an_atomic_file_as_a_context_manager(tmp_path):
    for name in ("file", "file.gz"):
        with AtomicFile(tmp_path / name) as file:
            file.write(b"whole")
        with pytest.raises(KeyboardInterrupt):
            with AtomicFile(tmp_path / name) as file:
                file.write(b"dropped")
                raise KeyboardInterrupt
    assert read(tmp_path / "file") == b"whole"
    assert gzip.decompress(read(tmp_path / "file.gz")) == b"whole"
    assert names(tmp_path) == ["file", "file.gz"]


@pytest.mark.parametrize("header_size", [0, 4])
def test_no_temporary_remains_if_the_path_exists(tmp_path, header_size):
    (tmp_path / "taken" / "by").mkdir(parents=True)
    file = AtomicFile(tmp_path / "taken", header_size=header_size)
    file.write(b"content")
    with pytest.raises(tf.errors.OpError, match="taken"):
        file.commit(bytes(header_size))
    assert names(tmp_path) == ["taken"]


def test_a_file_without_samples_and_a_place_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="file: no samples were written"):
        with MultiSlotWriter(tmp_path / "file", SPEC):
            pass
    with pytest.raises(ValueError, match="sample 1: slot 'click' is missing"):
        with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
            writer.write({"C1": 1})
    assert names(tmp_path) == []
    with pytest.raises(tf.errors.OpError, match="nowhere/file"):
        MultiSlotWriter(tmp_path / "nowhere" / "file", SPEC)


def test_floats_of_any_width(tmp_path):
    spec = Schema([Column.dense("d", (4,))])
    for dtype in (np.float16, np.float32, np.float64, np.longdouble):
        with MultiSlotWriter(tmp_path / "file", spec) as writer:
            writer.write({"d": np.array([0.25, -0.0, np.inf, 1024], dtype)})
        assert read(tmp_path / "file") == b"4 0.25 -0 inf 1024\n"


FREE = Schema(
    [
        Column.label("click", used=False),
        Column.dense("I", (-1, 2)),
        Column.sparse("C1", used=False),
        Column.sparse("C1_w", dtype="float", weights_of="C1"),
    ]
)


def test_a_free_dim_weights_and_unused_slots(tmp_path):
    with MultiSlotWriter(tmp_path / "file", FREE) as writer:
        for n in (0, 1, 2):
            writer.write_batch(
                {
                    "click": [1, 0],
                    "I": np.arange(4 * n).reshape(2, n, 2),
                    "C1": ([7] * n, [0, 0, n]),
                    "C1_w": ([0.5] * n, [0, 0, n]),
                }
            )
        writer.write({"click": 1, "I": [[1, 2], [3, 4]]})
    assert (tmp_path / "file").read_text().splitlines() == [
        "1 1 0 0 0",
        "1 0 0 0 0",
        "1 1 2 0 1 0 0",
        "1 0 2 2 3 1 7 1 0.5",
        "1 1 4 0 1 2 3 0 0",
        "1 0 4 4 5 6 7 2 7 7 2 0.5 0.5",
        "1 1 4 1 2 3 4 0 0",
    ]


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"I": np.zeros((2, 3, 1))},
            r"slot 'I' must have .* \[-1, 2\], got \[3, 1\]",
        ),
        (
            {"I": np.zeros((2, 2))},
            r"slot 'I' must have .* \[-1, 2\], got \[2\]",
        ),
        (
            {"C1_w": ([0.5], [0, 0, 1])},
            "sample 2: slot 'C1_w' must have 2 values, one per id of slot 'C1'",
        ),
        (
            {"C1": ([7, 8], [0, 1, 2]), "C1_w": ([1, 2], [0, 2, 2])},
            "sample 1: slot 'C1_w' must have 1 values, one per id of",
        ),
    ],
)
def test_shapes_and_weights_that_do_not_fit(tmp_path, change, message):
    columns = {
        "click": [1, 0],
        "I": np.zeros((2, 3, 2)),
        "C1": ([7, 8], [0, 0, 2]),
        "C1_w": ([1, 2], [0, 0, 2]),
    }
    with pytest.raises(ValueError, match=message):
        with MultiSlotWriter(tmp_path / "file", FREE) as writer:
            writer.write_batch({**columns, **change})
    assert names(tmp_path) == []


def test_weights_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ValueError, match="slot 'C1_w' must have 1 values"):
        with MultiSlotWriter(tmp_path / "file", FREE) as writer:
            writer.write({"click": 1, "I": [[1, 2]], "C1": 7})


def test_a_free_dim_that_differs_from_sample_to_sample(tmp_path):
    path = tmp_path / "file"
    with MultiSlotWriter(path, FREE) as writer:
        writer.write_batch(
            {
                "click": [1, 0],
                "I": (np.arange(6.0), [0, 2, 6]),
                "C1": ([], [0] * 3),
            }
        )
        with pytest.raises(
            ValueError,
            match="file: sample 4: slot 'I' must have a multiple of 2 values, got 3",
        ):
            writer.write_batch(
                {"click": [1, 0], "I": (np.arange(5.0), [0, 2, 5])}
            )
    assert path.read_text() == "1 1 2 0 1 0 0\n1 0 4 2 3 4 5 0 0\n"
