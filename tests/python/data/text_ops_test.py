"""The ops for Arrow strings and text files: hashes, offsets, errors."""

import gzip
import threading

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops

InvalidArgument = tf.errors.InvalidArgumentError


def hash_text(data, offsets, prefix=b""):
    return gen_ops.lodestar_hash_text(
        data=np.frombuffer(data, np.uint8), offsets=offsets, prefix=prefix
    )


def joined(strings):
    """Returns the data and offsets of an Arrow array of `strings`."""
    offsets = np.cumsum([0, *map(len, strings)], dtype=np.int64)
    return b"".join(strings), offsets


STRINGS = [
    *(b"x" * length for length in range(140)),
    *("", "ada", "naïve", "日本語 \U0001f600"),
    b"\xff\x00",
    b"",
]
STRINGS = [s.encode() if isinstance(s, str) else s for s in STRINGS]


@pytest.mark.parametrize("column", [None, "", "C1", "größe", "c" * 300])
@pytest.mark.parametrize("call", [hash_text, tf.function(hash_text)])
def test_hashes_are_those_of_hash_ids(column, call):
    prefix = b"" if column is None else column.encode() + b"\0"
    found = call(*joined(STRINGS), prefix)
    expected = lodestar.hash_ids(STRINGS, column=column)
    assert found.dtype == tf.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("column", [None, "C1"])
def test_hashes_of_many_strings(column, rng):
    # Enough for several threads.
    lengths = rng.integers(0, 90, 200_000)
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    data = rng.integers(0, 256, offsets[-1], np.uint8).tobytes()
    strings = [data[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
    prefix = b"" if column is None else column.encode() + b"\0"
    np.testing.assert_array_equal(
        hash_text(data, offsets, prefix),
        lodestar.hash_ids(strings, column=column),
    )


def test_hashes_of_a_slice_of_an_array_or_of_no_strings():
    data, offsets = joined(STRINGS)
    np.testing.assert_array_equal(
        hash_text(data, offsets[100:121]),
        lodestar.hash_ids(STRINGS[100:120]),
    )
    assert hash_text(b"", [0]).shape == (0,)
    assert hash_text(b"abc", [2], b"C1\0").shape == (0,)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "`offsets` must have at least one element"),
        ([[0, 1]], r"`offsets` must have rank 1, found shape \[1,2\]"),
        (
            [0, 2, 1, 3],
            r"`offsets` must not decrease, but offsets\[1\] is 2 and "
            r"offsets\[2\] is 1",
        ),
        (
            [-1, 2],
            r"`offsets` must be in \[0, 3\], the size of `data`, but "
            r"offsets\[0\] is -1",
        ),
        ([0, 1, 4], r"but offsets\[2\] is 4"),
        ([4], r"but offsets\[0\] is 4"),
    ],
)
def test_offsets_outside_the_data(offsets, message):
    with pytest.raises(InvalidArgument, match=message):
        hash_text(b"abc", np.asarray(offsets, np.int64))


def test_shape_of_the_hashes():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.uint8),
            tf.TensorSpec([5], tf.int64),
        ]
    )
    def hashes(data, offsets):
        found = gen_ops.lodestar_hash_text(
            data=data, offsets=offsets, prefix=""
        )
        assert found.shape == (4,)
        return found

    assert hashes(np.zeros(3, np.uint8), [0, 1, 1, 2, 3]).shape == (4,)
    with pytest.raises(ValueError, match="rank"):
        tf.function(hash_text)(b"abc", np.zeros([1, 2], np.int64))


def index_text(
    path,
    block_bytes=1 << 20,
    delimiter=",",
    quote='"',
    skip_lines=0,
    num_fields=0,
):
    return gen_ops.lodestar_index_text(
        filename=str(path),
        block_bytes=np.int64(block_bytes),
        delimiter=delimiter,
        quote=quote,
        skip_lines=np.int64(skip_lines),
        num_fields=np.int64(num_fields),
    )


def index(tmp_path, text, *arguments, name="a.csv", call=index_text):
    """Writes `text` to a file and runs the op on it."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    found = call(path, *arguments)
    return [output.numpy().tolist() for output in found]


# tests/core/records/text_index_test.cc has all cases.
@pytest.mark.parametrize("call", [index_text, tf.function(index_text)])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_small_files(tmp_path, call, name):
    for text, found in (
        (b"", [[0], [], 0, True]),
        (b'a,"\n\n\n",b\n1\n2', [[0, 10, 13], [1, 2], 13, False]),
    ):
        assert index(tmp_path, text, 4, name=name, call=call) == found


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_line_ends_at_block_boundaries(tmp_path, name, size):
    text = b"x" * (size - 2) + b"\r\n" + b"y\n"
    offsets, records, *_ = index(tmp_path, text, 1, name=name)
    assert offsets == [0, size, size + 2]
    assert records == [1, 1]
    offsets, *_ = index(tmp_path, text[:size], 1, name=name)
    assert offsets == [0, size]


def test_a_file_of_many_reads(tmp_path, rng):
    lines = [b"x" * n + b"\n" for n in rng.integers(0, 300, 40_000)]
    text = b"".join(lines)
    offsets, records, *_ = index(tmp_path, text, 100_000)
    ends = np.cumsum([len(line) for line in lines])
    assert set(offsets[1:]) <= set(ends)
    expected = [
        sum(len(line) > 1 for line in text[a:b].splitlines(keepends=True))
        for a, b in zip(offsets, offsets[1:])
    ]
    assert records == expected
    assert np.diff(offsets).max() < 100_000 + 301


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_quote_that_is_not_closed(tmp_path, name):
    text = b'a,b\n\nc,"d\ne\n'
    with pytest.raises(InvalidArgument) as error:
        index(tmp_path, text, name=name)
    assert (
        f"{tmp_path / name}: line 3: the quote of a field is not closed. Pass"
        in str(error.value)
    )


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_the_line_of_an_error_in_a_large_file(tmp_path, name, line_end):
    # Line ends of two bytes are at the boundary of reads.
    text = (b"x" * 62 + line_end) * 40_000 + b'"a' + line_end + b'b"c'
    with pytest.raises(
        InvalidArgument, match="line 40002: a quoted field from line 40001 ends"
    ):
        index(tmp_path, b"y" * 63 + text, name=name)


def test_lines_to_skip_and_the_number_of_fields(tmp_path):
    text = b'"\na,"b\nc,d"\n'
    assert index(tmp_path, text, 1, ",", '"', 1)[:2] == [[2, 12], [1]]
    assert index(tmp_path, text, 1, ",", '"', 1, 3)[1] == [1]
    with pytest.raises(InvalidArgument, match="a.csv: line 2: a quoted field"):
        index(tmp_path, text, 1, ",", '"', 1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "`block_bytes` must be from 1 to .*, found 0"),
        ((9, ""), "`delimiter` must be one ASCII character .*, got 0 bytes"),
        ((9, ",,"), "`delimiter` must be one ASCII character .*, got 2 bytes"),
        ((9, "\n"), "`delimiter` must be one ASCII character .*, got byte 10"),
        ((9, b"\xef"), "`delimiter` must be .*, got byte 239"),
        ((9, ",", "\r"), "`quote` must be empty or one .*, got byte 13"),
        ((9, ",", ","), "`delimiter` and `quote` must be different, got ','"),
        ((9, ",", '"', -1), "`skip_lines` must be from 0 to .*, found -1"),
        ((9, ",", '"', 0, -1), "`num_fields` must be from 0 to .*, found -1"),
        ((9, [","]), r"`delimiter` must have rank 0, found shape \[1\]"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        index(tmp_path, b"a\n", *arguments)


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "missing.csv"
    with pytest.raises(tf.errors.NotFoundError, match=str(path)):
        index_text(path)
    with pytest.raises(tf.errors.OpError, match=str(tmp_path)):
        index_text(tmp_path)


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(256 << 20)
    has_ended = threading.Event()

    def grow():
        with path.open("ab", buffering=0) as file:
            while not has_ended.wait(0.001):
                file.write(b"a")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=f"{path}: changed while it was read",
        ):
            index_text(path)
    finally:
        has_ended.set()
        thread.join()


def test_shapes_of_an_index(tmp_path):
    @tf.function
    def shapes():
        found = index_text(tmp_path / "a.csv")
        assert [output.shape.rank for output in found] == [1, 1, 0, 0]
        return found.size

    (tmp_path / "a.csv").write_bytes(b"a\n")
    assert shapes().numpy() == 2
    # Each call reads the file, not the tracing of the graph.
    (tmp_path / "a.csv").write_bytes(b"a\nbc\n")
    assert shapes().numpy() == 5
