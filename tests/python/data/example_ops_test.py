"""The ops that read tf.Examples, called with arguments that no source uses."""

import gzip

import pytest
import tensorflow as tf

from lodestar._library import gen_ops


def record(**features):
    lists = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in features.items()
    }
    return tf.train.Example(
        features=tf.train.Features(feature=lists)
    ).SerializeToString()


def write(path, *records):
    with tf.io.TFRecordWriter(str(path)) as out:
        for one in records:
            out.write(one)
    return path


def index(path, block_bytes=1, described_records=1):
    return gen_ops.lodestar_index_examples(
        filename=str(path),
        block_bytes=tf.constant(block_bytes, tf.int64),
        described_records=tf.constant(described_records, tf.int64),
    )


def parse(data, names=("n",), kinds=None, nested=None, offset=0):
    return gen_ops.lodestar_parse_examples(
        data=data,
        offset=tf.constant(offset, tf.int64),
        names=tf.constant(names, tf.string),
        kinds=tf.constant(
            [0] * len(names) if kinds is None else kinds, tf.int64
        ),
        nested=tf.constant(
            [False] * len(names) if nested is None else nested, tf.bool
        ),
        num_columns=len(names),
    )


def test_blocks_are_parsed_independently(tmp_path):
    path = write(tmp_path / "a", *(record(n=[i] * 1000) for i in range(2000)))
    found = index(path)
    offsets = found.offsets.numpy()
    assert offsets[-1] == path.stat().st_size
    assert sum(found.records.numpy()) == 2000
    assert len(found.records) > 2
    assert found.described.numpy() == 1
    assert found.names.numpy().tolist() == [b"n"]
    assert found.kinds.numpy().tolist() == [3]
    assert found.levels.numpy().tolist() == [1]
    (tmp_path / "a.gz").write_bytes(gzip.compress(path.read_bytes()))
    for a, b in zip(found, index(tmp_path / "a.gz"), strict=True):
        assert a.numpy().tolist() == b.numpy().tolist()
    whole = index(path, block_bytes=2**62, described_records=0)
    assert whole.records.numpy().tolist() == [2000]
    assert whole.names.numpy().tolist() == []
    data = path.read_bytes()
    row = 0
    for begin, end, count in zip(offsets, offsets[1:], found.records.numpy()):
        parsed = parse(data[begin:end], offset=begin)
        values = parsed.values[0].numpy().view("int64").reshape(count, 1000)
        assert values[:, 0].tolist() == list(range(row, row + count))
        row += count


def test_arguments(tmp_path):
    path = write(tmp_path / "a", record(n=[1]))
    data = path.read_bytes()
    with pytest.raises(tf.errors.InvalidArgumentError, match="`block_bytes`"):
        index(path, block_bytes=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`described_rec"):
        index(path, described_records=-1)
    for kinds in [-1], [4]:
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"`kinds\[0\]` must be in"
        ):
            parse(data, kinds=kinds)
    for arguments in ({"kinds": [0, 0]}, {"nested": []}):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"must have shape \[1\]"
        ):
            parse(data, **arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`offset`"):
        parse(data, offset=-1)
    parsed = parse(data, names=())
    assert parsed.values == []
    assert parsed.faults.numpy().tolist() == []


def test_data_that_are_not_whole_records(tmp_path):
    data = write(tmp_path / "a", record(n=[1]), record(n=[2])).read_bytes()
    half = len(data) // 2
    for size in range(1, len(data)):
        if size == half:
            continue
        with pytest.raises(
            tf.errors.DataLossError,
            match=rf"record {int(size > half)} at byte \d+: .* is truncated",
        ):
            parse(data[:size])
    damaged = bytearray(data)
    damaged[half - 5] ^= 1
    parsed = parse(bytes(damaged), offset=100)
    assert parsed.bad_rows.numpy().tolist() == [0]
    assert parsed.faults.numpy().tolist() == [
        b"at byte 100: its checksum is wrong: the file is damaged"
    ]
    assert parsed.row_splits[0].numpy().tolist() == [0, 0, 1]
