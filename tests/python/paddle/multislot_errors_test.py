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


# All errors are in tests/core/records/multislot_format_test.cc.
@pytest.mark.parametrize(
    "line, message",
    [
        ("", "slot 'click' at byte 1: the line ends before its count"),
        ("1 1 2 .5 1 x 7 1 1", "count is 'x', expected an integer"),
        (
            "1 1 2 .5 20200715 0 1 1",
            "slot 'I' at byte 10: value 2 of 2 is '20200715', which float32 "
            "does not hold: the nearest is 20200716. Store ids and dates",
        ),
        ("1 1 2 .5 1 0 1 7", "is '7', expected an integer in [0, 7)"),
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


def test_bytes_without_a_newline_are_refused(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\xff" * (66 << 20))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="binary: line 1: not a text file: no newline",
    ):
        read(path)


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


TWO = [Column.label("y"), Column.sparse("C")]
MANY = 10_000_000  # consecutive bad records, more than may be skipped


@pytest.mark.parametrize(
    "options", [{"deterministic": False}, {"mode": "file_instant"}]
)
def test_a_small_file_of_nothing_but_newlines_ends(tmp_path, options):
    path = tmp_path / "in.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"1 1 1 7\n")
        for _ in range(110):
            file.write(b"\n" * (MANY // 100))
    skipped = SkippedRecords()
    found = MultiSlotDataset(
        path, TWO, 1, on_error="skip", skipped=skipped, **options
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
