"""SaveInterval, by a clock that the test sets."""

import pytest

from lodestar.snapshot import SaveInterval, save_interval


class Clock:
    """Replaces the module `time`."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(save_interval, "time", clock)
    return clock


def saved_days(clock, day_seconds, save_seconds, days=20, **options):
    interval, found = SaveInterval(**options), []
    for day in range(1, days + 1):
        clock.now += day_seconds
        if interval.due():
            clock.now += save_seconds
            interval.saved(save_seconds)
            found.append(day)
    return found


def test_saving_takes_two_percent_of_the_time(clock):
    assert saved_days(clock, 100, 2) == list(range(1, 21))
    assert saved_days(clock, 100, 3) == list(range(1, 21, 2))
    assert saved_days(clock, 10, 1.5) == [1, 9, 17]
    assert saved_days(clock, 10, 0) == list(range(1, 21))
    assert saved_days(clock, 10, 5, share=1) == list(range(1, 21))
    assert saved_days(clock, 10, 5, share=0.25) == [*range(1, 21, 2)]


def test_saves_are_at_least_a_second_apart(clock):
    assert saved_days(clock, 0.25, 0, 12) == [4, 8, 12]


def test_a_failed_save_is_not_repeated_at_once(clock):
    interval = SaveInterval()
    clock.now += 10
    assert interval.due()
    interval.saved(1.0)
    clock.now += 50
    assert interval.due()
    interval.saved()
    clock.now += 49
    assert not interval.due()
    clock.now += 1
    assert interval.due()


@pytest.mark.parametrize("share", [0, -1, 1.5, "2 %", None, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"`share` must be in \(0, 1\], got"):
        SaveInterval(share)
