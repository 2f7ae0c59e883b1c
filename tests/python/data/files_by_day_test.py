"""Tests of files_by_day."""

import datetime

import pytest

from lodestar.data import DataError, files_by_day

DAYS = [datetime.date(2024, 2, d) for d in (27, 28, 29)] + [
    datetime.date(2024, 3, 1)
]


@pytest.fixture
def log(tmp_path):
    for day in DAYS:
        folder = tmp_path / day.strftime("%Y%m%d")
        folder.mkdir()
        for part in (1, 0):
            (folder / f"part-{part}.txt").touch()
        (folder / "_SUCCESS").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2024-02-27", "2024-03-01"),
        ("20240227", "20240301"),
        (DAYS[0], DAYS[-1]),
        (datetime.datetime(2024, 2, 27, 23, 59), DAYS[-1]),
    ],
)
def test_days_in_order_with_their_files_sorted(log, start, end):
    found = files_by_day(str(log / "%Y%m%d" / "part-*.txt"), start, end)
    assert list(found) == DAYS
    for day, files in found.items():
        folder = log / day.strftime("%Y%m%d")
        assert files == [str(folder / f"part-{p}.txt") for p in (0, 1)]


def test_a_missing_day(log):
    pattern = str(log / "%Y%m%d" / "part-*")
    with pytest.raises(DataError, match=r"20240302.*no file.*2024-03-02"):
        files_by_day(pattern, "2024-03-01", "2024-03-03")
    found = files_by_day(pattern, "2024-02-20", "2024-02-28", on_missing="skip")
    assert list(found) == DAYS[:2]
    with pytest.raises(DataError, match="no file matches on any day"):
        files_by_day(pattern, "2025-01-01", "2025-01-09", on_missing="skip")


@pytest.mark.parametrize(
    ("pattern", "start", "end", "message"),
    [
        ("log/%Y%m%d", "2024-03-02", "2024-03-01", "`end`=.*is before"),
        ("log/%Y%m", "2024-03-01", "2024-03-02", "Use codes of a day"),
        ("log/*", "2024-03-01", "2024-03-02", "Use codes of a day"),
        ("log/%d", "March", "2024-03-02", "`start` must be .* got 'March'"),
        (
            "log/%d",
            "2024-02-30",
            "2024-03-02",
            "`start` must be a datetime.date",
        ),
        ("log/%d", "2024-02-20", 20240302, "`end` must be .* got 20240302"),
    ],
)
def test_errors_name_the_cause(pattern, start, end, message):
    with pytest.raises(ValueError, match=message):
        files_by_day(pattern, start, end)
    with pytest.raises(ValueError, match="`on_missing`='no' is not in"):
        files_by_day("%d", "2024-01-01", "2024-01-02", on_missing="no")
