"""The errors of MultiSlotDataset and their messages."""

import gzip
import re

import pytest
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.data import Column, Schema, SkippedRecords
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.sparse("C1"),
        Column.one_hot("day", 7),
    ]
)
GOOD = "1 1 2 .5 1 2 7 8 1 6\n"


def read(files, **options):
    return sum(len(y) for _, y in MultiSlotDataset(files, SPEC, 2, **options))


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "slot 'click' at byte 1: the line ends before its count"),
        ("1 1 2 .5 1 1 7", "slot 'day' at byte 15: the line ends before"),
        ("1 1 2 .5 1 2 7", "slot 'C1' at byte 15: the line ends after 1 of 2"),
        (
            "1 1 2 .5 1 1 7 1",
            "slot 'day' at byte 17: the line ends after 0 of 1",
        ),
        ("1 1 3 1 2 3 0 1 1", "slot 'I' at byte 5: count is 3, expected 2"),
        ("1 1 2 .5 1 -1 7 1 1", "count is '-1', expected 0 or more"),
        ("1 1 2 .5 1 x 7 1 1", "count is 'x', expected an integer"),
        (
            "1 1 2 .5 abc 0 1 1",
            "slot 'I' at byte 10: value 2 of 2 is 'abc', ex",
        ),
        ("1 1 2 .5 1 1 7.5 1 1", "slot 'C1' at byte 14: value 1 of 1 is '7.5'"),
        ("1 1 2 .5 1 1 18446744073709551616 1 1", "out of the range of uint64"),
        ("1 1 2 .5 1e99 0 1 1", "'1e99', out of the range of float"),
        *(
            (
                f"1 1 2 .5 {text} 0 1 1",
                f"slot 'I' at byte 10: value 2 of 2 is '{text}', which float32 "
                f"does not hold: the nearest is {nearest}. Store ids and dates",
            )
            for text, nearest in (
                ("20200715", 20200716),
                ("-16777217", -16777216),
                ("9007199254740993", 2**53),
                ("1e20", 100000002004087734272),
            )
        ),
        (
            "1 2 2 .5 1 0 1 1",
            "slot 'click' at byte 3: value 1 of 1 is '2', exp",
        ),
        ("1 1 2 .5 1 0 1 7", "is '7', expected an integer in [0, 7)"),
        ("1 1 2 .5 1 0 1 1 5", "byte 18: found '5' after the last slot 'day'"),
        ("1 1 2 .5 1 0 1 \x00", "not a text file: a NUL byte at byte 16"),
        ("1 1 2 .5 1 0 1 ☃", r"is '\xe2\x98\x83', expected an integer"),
    ],
)
def test_a_bad_line_is_named_by_file_line_slot_and_byte(
    tmp_path, line, message
):
    good = tmp_path / "good"
    good.write_text(GOOD * 3)
    bad = tmp_path / "bad"
    bad.write_text(GOOD * 4 + line + "\n" + GOOD)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=re.escape(f"{bad}:5: ")
    ) as error:
        read([good, bad])
    assert message in str(error.value)
    text = describe_error(error.value)
    assert text.startswith(f"{bad}:5: ")
    assert "\n" not in text
    assert "{{" not in text and "[Op:" not in text


def test_full_batches_before_the_bad_line_are_returned(tmp_path):
    path = tmp_path / "bad"
    path.write_text(GOOD * 5 + "oops\n" + GOOD)
    iterator = iter(MultiSlotDataset(path, SPEC, 2, prefetch=0))
    assert len(next(iterator)[1]) == 2
    assert len(next(iterator)[1]) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad:6: slot 'cl"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_missing_file_is_named(tmp_path, deterministic):
    good = tmp_path / "good"
    good.write_text(GOOD)
    missing = tmp_path / "missing"
    with pytest.raises(tf.errors.NotFoundError, match=str(missing)):
        read([good, missing], deterministic=deterministic)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ["empty", "empty.gz"])
def test_an_empty_file_is_named(tmp_path, deterministic, name):
    good = tmp_path / "good"
    good.write_text(GOOD)
    empty = tmp_path / name
    empty.write_bytes(b"")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"{empty}: the file has no records",
    ):
        read([good, empty], deterministic=deterministic)


def test_a_file_cut_within_its_last_value_is_refused(tmp_path):
    path = tmp_path / "cut"
    path.write_text((GOOD * 3)[:-1])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="cut:3: the last line has no newline at its end",
    ):
        read(path)


@pytest.mark.parametrize("keep", range(1, 42))
def test_a_file_cut_anywhere_but_between_lines_is_refused(tmp_path, keep):
    path = tmp_path / "cut"
    path.write_text((GOOD * 2)[:keep])
    if keep % len(GOOD) == 0:
        assert read(path) == keep // len(GOOD)
        return
    line = keep // len(GOOD) + 1
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"cut:{line}: "):
        read(path)


def test_a_binary_file_is_refused_on_line_1(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(bytes(range(256)) * 100)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="binary:1: not a text file"
    ):
        read(path)


def test_bytes_without_a_newline_are_refused(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\xff" * (66 << 20))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="binary: line 1: not a text file: no newline",
    ):
        read(path)


def test_a_compressed_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "cut.gz"
    # Gzip with uncompressed blocks, so that some cuts fall between two lines.
    whole = gzip.compress(GOOD.encode() * 2, compresslevel=0)
    for keep in range(1, len(whole)):
        path.write_bytes(whole[:keep])
        with pytest.raises(tf.errors.InvalidArgumentError, match="cut.gz:"):
            read(path)
    path.write_bytes(whole)
    assert read(path) == 2
    path.write_bytes(whole + gzip.compress(GOOD.encode()))
    assert read(path) == 3


def test_a_file_that_is_not_gzip_is_named(tmp_path):
    path = tmp_path / "file.gz"
    path.write_text(GOOD)
    with pytest.raises(tf.errors.OpError, match=r"file\.gz"):
        read(path)


def test_a_folder_is_named(tmp_path):
    with pytest.raises(tf.errors.OpError, match=str(tmp_path)):
        read(tmp_path)


def test_an_error_in_a_later_piece_has_the_right_line(tmp_path):
    path = tmp_path / "big"
    path.write_text(GOOD * 90_000 + "oops\n" + GOOD * 90_000)
    for options in ({"num_parallel_files": 4}, {"deterministic": False}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="big:90001: "):
            for _ in MultiSlotDataset(path, SPEC, 10_000, **options):
                pass


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1, g"),
        ({"batch_size": 2.0}, "`batch_size` must be an integer .* got 2.0"),
        ({"num_parallel_files": 0}, "`num_parallel_files` must be an integer"),
        (
            {"shuffle": -1},
            "`shuffle` must be an integer of at least 0",
        ),
        ({"repeat": 0}, "`repeat` must be an integer of at least 1"),
        ({"prefetch": -1}, "`prefetch` must be an integer of at least 0"),
        ({"files": []}, "`files` must have at least"),
        ({"schema": []}, "at least one column"),
    ],
)
def test_bad_options_are_refused(options, message):
    arguments = {"files": "x", "schema": SPEC, "batch_size": 2, **options}
    with pytest.raises(ValueError, match=message):
        MultiSlotDataset(**arguments)


TWO = [Column.label("y"), Column.sparse("C")]
MANY = 10_000_000  # consecutive bad records, more than may be skipped


@pytest.mark.parametrize("options", [{}, {"deterministic": False}])
@pytest.mark.parametrize("mode", ["queue", "file_instant"])
def test_a_small_file_of_nothing_but_newlines_ends(tmp_path, mode, options):
    path = tmp_path / "in.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"1 1 1 7\n")
        for _ in range(110):
            file.write(b"\n" * (MANY // 100))
    skipped = SkippedRecords()
    found = MultiSlotDataset(
        path, TWO, 1, on_error="skip", skipped=skipped, mode=mode, **options
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"in\.gz: 10\d{6} bad records in a row exceed the limit of 10000000",
    ):
        for _ in found:
            pass
    assert MANY <= skipped.count <= 1.1 * MANY
    assert len(skipped.messages) == 100


def test_many_skipped_lines_are_counted_and_the_first_are_reported(tmp_path):
    path = tmp_path / "in"
    bad = ["\n", "1 1 1 x\n", "1 2 1 7\n", "1 1 1 7 7\n", "x\n", "1 1 2 7\n"]
    path.write_text(("1 1 1 7\n" + "".join(bad)) * 50_000)
    skipped = SkippedRecords()
    found = MultiSlotDataset(
        path, TWO, 50_000, on_error="skip", skipped=skipped
    )
    assert [len(label) for _, label in found] == [50_000]
    assert skipped.count == len(bad) * 50_000
    texts = skipped.messages
    assert len(texts) == 100 and all(f"{path}:" in text for text in texts)
    # An error that ends reading is reported, however many came before.
    more = tmp_path / "more"
    more.write_text("1 1 1 x\n")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="value 1 of 1 is 'x'"
    ):
        list(MultiSlotDataset(more, TWO, 1))
