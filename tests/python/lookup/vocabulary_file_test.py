"""Vocabulary files: the same as in TensorFlow, with errors that name the line."""

import gzip
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from lodestar.lookup import IdTable, IdTableWithHashBuckets

LINE = tf.lookup.TextFileIndex.LINE_NUMBER
WHOLE = tf.lookup.TextFileIndex.WHOLE_LINE


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes bytes to a file and returns its path."""

    def write_bytes(content, name="vocabulary.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write_bytes


def test_a_byte_order_mark_is_not_part_of_a_key(write):
    mark = b"\xef\xbb\xbf"
    table = IdTable.from_file(write(mark + b"a\n" + mark + b"a\n"))
    assert table.lookup([b"a", mark + b"a"]).numpy().tolist() == [0, 1]
    table = IdTable.from_file(write(mark + b"5\n7\n"), key_dtype=tf.int64)
    assert table.lookup(tf.constant([5, 7], tf.int64)).numpy().tolist() == [
        0,
        1,
    ]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="vocabulary.txt:1: the file begins with the byte order mark of",
    ):
        IdTable.from_file(write("a\nb\n".encode("utf-16")))
    with pytest.raises(tf.errors.InvalidArgumentError, match=":1: the line is"):
        IdTable.from_file(write(mark + b"\n"))


@pytest.mark.parametrize(
    "content, key_dtype, key, value, delimiter",
    [
        (b"a\nb\nc\n", tf.string, WHOLE, LINE, "\t"),
        (b"a\r\nb\rc\r\n", tf.string, WHOLE, LINE, "\t"),
        (b" a \n\0\xff\nlast", tf.string, WHOLE, LINE, "\t"),
        (b"5\n -7\n9 \r\n", tf.int64, WHOLE, LINE, "\t"),
        pytest.param(
            *(b"+9\n", tf.int64, WHOLE, LINE, "\t"),
            marks=pytest.mark.skipif(
                tf.__version__.startswith("2.18."),
                reason="TensorFlow 2.18 rejects a plus sign",
            ),
        ),
        (b"a\t1\nb\t-2\tmore\n\t3\n", tf.string, 0, 1, "\t"),
        (b"7,x\n9,y\n", tf.string, 1, 0, ","),
        (b"7,x\n9,y\n", tf.int64, LINE, 0, ","),
        (b"a a\nb b\n", tf.string, 1, LINE, " "),
        (b"a\na b\nb a\n", tf.string, WHOLE, LINE, " "),
        (b"a\t1\na\t1\n", tf.string, 0, 1, "\t"),
    ],
)
def test_agrees_with_tensorflow(
    content, key_dtype, key, value, delimiter, write
):
    path = write(content)
    stock = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            path, key_dtype, key, tf.int64, value, delimiter=delimiter
        ),
        -1,
        experimental_is_anonymous=True,
    )
    table = IdTable.from_file(
        path,
        key_dtype=key_dtype,
        key_column=key,
        value_column=value,
        delimiter=delimiter,
    )
    keys, values = stock.export()
    assert int(table.size()) == len(keys) > 0
    np.testing.assert_array_equal(table[keys], values)


def test_many_pieces_of_a_file(write):
    count = 300_000
    lines = [b"key %d" % (i * 7919) for i in range(count)]
    content = b"\n".join(lines)
    for path in (
        write(content),
        write(gzip.compress(content, 1), "vocabulary.gz"),
    ):
        table = IdTable.from_file(path)
        keys, ids = table.export()
        assert keys.numpy().tolist() == lines
        np.testing.assert_array_equal(ids, np.arange(count))


def test_vocab_size_and_buckets(write):
    path = write(b"a\nb\nc\n")
    table = IdTableWithHashBuckets(IdTable.from_file(path, vocab_size=2), 4)
    assert int(table.size()) == 6
    assert table[tf.constant(["b"])].numpy().tolist() == [1]
    assert 2 <= int(table[tf.constant("c")]) < 6
    assert int(IdTable.from_file(write(b"a\nb"), vocab_size=2).size()) == 2
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"vocabulary.txt: the file has 3 lines, but `vocab_size` is 5",
    ):
        IdTable.from_file(write(b"a\nb\nc"), vocab_size=5)


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.uint32, tf.uint64])
def test_narrow_and_unsigned_keys(dtype, write):
    path = write(b"%d\n%d\n" % (dtype.max, dtype.min))
    table = IdTable.from_file(path, key_dtype=dtype)
    keys = tf.constant([dtype.min, dtype.max, 5], dtype)
    assert table[keys].numpy().tolist() == [1, 0, -1]
    path = write(b"1\n%d\n" % (dtype.max + 1))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f":2: .* is not a valid {dtype.name}",
    ):
        IdTable.from_file(path, key_dtype=dtype)


@pytest.mark.parametrize(
    "content, options, message",
    [
        (b"a\n\nb\n", {}, ":2: the line is empty"),
        (b"\r\n", {}, ":1: the line is empty"),
        (b"a\nb\na\n", {}, ":3: key 'a' has two values: 0 and 2"),
        (b"", {}, "the file has no records"),
        (
            b"a\t1\nb\n",
            {"key_column": 0, "value_column": 1},
            ":2: the line must have at least 2 columns, got 1",
        ),
        (
            b"a\t1\nb\tnine\n",
            {"key_column": 0, "value_column": 1},
            ":2: 'nine' is not a valid int64",
        ),
        (
            b"a\t1\na\t2\n",
            {"key_column": 0, "value_column": 1},
            ":2: key 'a' has two values: 1 and 2",
        ),
        (
            b"5\nsix\n",
            {"key_dtype": tf.int64},
            ":2: 'six' is not a valid int64",
        ),
        (
            b"5\n9223372036854775808\n",
            {"key_dtype": tf.int64},
            ":2: '9223372036854775808' is not a valid int64",
        ),
        (
            b"5\n" * 200,
            {
                "key_dtype": tf.int8,
                "key_column": LINE,
                "value_column": WHOLE,
            },
            ":129: the line number does not fit the keys' type",
        ),
        (
            b"5\n",
            {"key_column": LINE, "value_column": WHOLE},
            "the line number, but the table's keys are string",
        ),
    ],
)
def test_malformed_files(content, options, message, write):
    path = write(content)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as error:
        IdTable.from_file(path, **options)
    if ":" in message[:1]:
        assert path + message.split(" ")[0] in str(error.value)


def test_a_failed_import_leaves_the_table_as_it_was(write):
    table = IdTable(["x"])
    for content in (b"a\nb\n\n", b"a\na\n"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            table.load_file(write(content))
    assert table[tf.constant(["a", "x"])].numpy().tolist() == [-1, 0]
    table.load_file(write(b"a\n"))
    assert table[tf.constant(["a", "x"])].numpy().tolist() == [0, -1]


def test_kinds_of_paths(write):
    path = write(b"a\nb\n")
    for kind in (path, pathlib.Path(path), path.encode(), tf.constant(path)):
        assert IdTable.from_file(kind)[["b"]].numpy().tolist() == [1]
        table = IdTable(["x"])
        table.load_file(kind)
        assert table[["b"]].numpy().tolist() == [1]
    with pytest.raises(
        TypeError, match="str, bytes or os.PathLike .*, not int"
    ):
        IdTable.from_file(3)


def test_unreadable_files_and_options(tmp_path, write):
    with pytest.raises(tf.errors.NotFoundError, match="absent.txt"):
        IdTable.from_file(str(tmp_path / "absent.txt"))
    with pytest.raises(tf.errors.OpError, match=str(tmp_path)):
        IdTable.from_file(str(tmp_path))
    path = write(b"a\n")
    for options, message in (
        ({"vocab_size": 0}, "`vocab_size` must be at least 1, got 0"),
        ({"delimiter": "::"}, "`delimiter` must be one character, got '::'"),
        ({"key_column": -3}, "`key_column` must be a column.*got -3"),
        ({"value_column": -3}, "`value_column` must be a column.*got -3"),
    ):
        with pytest.raises(ValueError, match=message):
            IdTable.from_file(path, **options)
