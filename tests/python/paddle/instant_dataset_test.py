"""Files of FileInstantDataset, against bytes assembled by hand."""

import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema, open_dataset, open_writer

SLOTS = Schema(
    [
        Column.label("click"),
        Column.sparse("item"),
        Column.dense("price", [2]),
        Column.dense("unused", [1], used=False),
        Column.sparse("score", dtype="float"),
    ]
)
SAMPLES = [
    dict(zip(SLOTS.names(), values))
    for values in (
        (1, [7, 2**64 - 1], [0.5, -2.0], 3.0, [1.5]),
        (0, [8], [1.0, 2.0], 4.0, [2.5, 3.5]),
        (1, [9, 9, 9], [0.0, 0.0], 5.0, [0.0]),
    )
]


def sample_bytes(batch_size, click, items, price, unused, score):
    """Returns a sample as MultiSlotFileInstantDataFeed reads it."""
    return b"".join(
        [
            # A used dense slot: the number of dims and values, the dims of the
            # batch that its shape [-1, ...] leaves open, and the values.
            struct.pack("<HQQ", 2, batch_size, click),
            struct.pack("<H", len(items))
            + struct.pack(f"<{len(items)}Q", *items),
            struct.pack("<HQ2f", 3, batch_size, *price),
            struct.pack("<Hf", 1, unused),
            struct.pack("<H", len(score))
            + struct.pack(f"<{len(score)}f", *score),
        ]
    )


WANTED = (
    sample_bytes(2, 1, [7, 2**64 - 1], [0.5, -2.0], 3.0, [1.5])
    + sample_bytes(2, 0, [8], [1.0, 2.0], 4.0, [2.5, 3.5])
    + sample_bytes(1, 1, [9, 9, 9], [0.0, 0.0], 5.0, [0.0])
)  # batches of 2 and 1


def write(path, samples=SAMPLES, batch_size=2, schema=SLOTS):
    with open_writer(
        path, schema, format="instant", batch_size=batch_size
    ) as writer:
        for sample in samples:
            writer.write(sample)
    return writer


def read(path, schema=SLOTS, batch_size=2, **options):
    return open_dataset(path, schema, batch_size, format="instant", **options)


def items(dataset):
    """Returns the ids of all samples."""
    return [ids for x, _ in dataset for ids in x["item"].to_list()]


ITEMS = [[7, -1], [8], [9, 9, 9]]


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "part-0"
    assert write(path).num_samples == 3
    assert path.read_bytes() == WANTED


@pytest.mark.parametrize("threads", [1, 3])
def test_batches(tmp_path, threads):
    path = tmp_path / "part-0"
    path.write_bytes(WANTED)
    (first, clicks), (last, click) = read(path, num_parallel_files=threads)
    assert sorted(first) == ["item", "price", "score"]
    assert clicks.numpy().tolist() == [[1], [0]]
    assert first["item"].to_list() == [[7, -1], [8]]
    assert first["price"].numpy().tolist() == [[0.5, -2.0], [1.0, 2.0]]
    assert first["score"].to_list() == [[1.5], [2.5, 3.5]]
    assert click.numpy().tolist() == [[1]]
    assert last["item"].to_list() == [[9, 9, 9]]
    (tmp_path / "part-0.gz").write_bytes(gzip.compress(WANTED))
    assert items(read(tmp_path / "part-0.gz")) == ITEMS


def test_the_suffix_is_that_of_the_format(tmp_path):
    path = tmp_path / "a.instant"
    with open_writer(path, SLOTS) as writer:
        writer.write(SAMPLES[0])
    # The schema is beside it.
    assert items(open_dataset(path)) == ITEMS[:1]
    assert path.read_bytes()[2:10] == struct.pack("<Q", 1)


def test_other_formats(tmp_path):
    path, text = tmp_path / "part-0", tmp_path / "part-0.txt"
    slots = Schema(column for column in SLOTS if column.used)
    samples = [
        {name: value for name, value in sample.items() if name in slots}
        for sample in SAMPLES
    ]
    write(path, samples, schema=slots)
    with open_writer(text, slots) as writer:
        for columns in read(path, slots, as_columns=True):
            writer.write_batch(columns)
    with open_writer(tmp_path / "again.instant", slots, batch_size=2) as writer:
        for columns in open_dataset(text, slots, as_columns=True):
            writer.write_batch(columns)
    assert (tmp_path / "again.instant").read_bytes() == path.read_bytes()


def test_random_samples_of_many_files(tmp_path):
    rng = np.random.default_rng(1)
    slots = Schema(
        [
            Column.one_hot("day", 7),
            Column.label("clicks", binary=False),
            Column.sparse("ids"),
            Column.sparse("weights", dtype="float", weights_of="ids"),
            Column.dense("m", [2, 3]),
        ]
    )
    samples, files = [], []
    for part in range(3):
        own = []
        for _ in range(100):
            n = rng.integers(1, 6)
            own.append(
                {
                    "day": rng.integers(7),
                    "clicks": rng.integers(100),
                    "ids": rng.integers(-(2**63), 2**63, n),
                    "weights": rng.normal(size=n).astype(np.float32),
                    "m": rng.normal(size=(2, 3)).astype(np.float32),
                }
            )
        write(tmp_path / f"part-{part}", own, 64, slots)
        files.append(tmp_path / f"part-{part}")
        samples += own

    at = 0
    for x, y in read(files, slots, 32, num_parallel_files=3):
        for i in range(len(y)):
            sample = samples[at]
            assert (
                x["day"][i].numpy().tolist()
                == np.eye(7)[sample["day"]].tolist()
            )
            assert y[i, 0] == sample["clicks"]
            np.testing.assert_array_equal(x["ids"][i], sample["ids"])
            np.testing.assert_array_equal(x["weights"][i], sample["weights"])
            np.testing.assert_array_equal(x["m"][i], sample["m"])
            at += 1
    assert at == 300


def test_matrices_and_large_counts(tmp_path):
    slots = Schema([Column.dense("m", [2, 3]), Column.sparse("ids")])
    sample = {"m": np.arange(6.0).reshape(2, 3), "ids": np.arange(65535)}
    write(tmp_path / "a", [sample], 1, slots)
    (found,) = read(tmp_path / "a", slots)
    np.testing.assert_array_equal(found["m"][0], sample["m"])
    np.testing.assert_array_equal(found["ids"][0], sample["ids"])
    sample["ids"] = np.arange(65536)
    with pytest.raises(
        ValueError, match="slot 'ids' must have 1 to 65535 values, got 65536"
    ):
        write(tmp_path / "b", [sample], 1, slots)
    assert not (tmp_path / "b").exists()


def test_empty_lists_are_refused(tmp_path):
    sample = {**SAMPLES[0], "item": []}
    with pytest.raises(
        ValueError, match="sample 2: slot 'item' must have 1 to .* got 0"
    ):
        write(tmp_path / "a", [SAMPLES[0], sample])
    assert not (tmp_path / "a").exists()


def packed(format, *values):
    return struct.pack("<" + format, *values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            packed("HQQ", 1, 2, 1),
            "part-0: record 0 at byte 0: slot 'click' at its byte 0: count is 1, "
            "expected 2, including a batch size; check the slots",
        ),
        (WANTED[:26], "slot 'item' at its byte 18: .*: the file is truncated"),
        (
            sample_bytes(1, 2, [7], [1, 2], 3, [4]),
            "slot 'click' at its byte 0: value 1 of 1 is 2, expected 0 or 1",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path, data, message):
    path = tmp_path / "part-0"
    path.write_bytes(data)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(read(path))


def test_errors(tmp_path):
    with pytest.raises(TypeError, match="no argument `nothing`"):
        read(tmp_path / "a", nothing=1)
    (tmp_path / "a").write_bytes(WANTED)
    with pytest.raises(ValueError, match="`split` is not an option of instant"):
        read(tmp_path / "a", split=0.1)
    with pytest.raises(ValueError, match="`batch_size` must be an integer"):
        write(tmp_path / "a", batch_size=0)
    with pytest.raises(
        lodestar.data.DataError, match="is an option of instant"
    ):
        open_writer(tmp_path / "a.txt", SLOTS, batch_size=2)


@pytest.mark.parametrize(
    "column", [Column.dense("x", [-1]), Column.sample_weight("x")]
)
def test_columns_without_a_description(tmp_path, column):
    (tmp_path / "a").write_bytes(WANTED)
    for call, name in ((open_writer, "b"), (open_dataset, "a")):
        with pytest.raises(
            ValueError, match="'x': a DataFeedDesc cannot express"
        ):
            call(tmp_path / name, Schema([column]), format="instant")
    assert tf.io.gfile.listdir(str(tmp_path)) == ["a"]
