"""Tests of the gate: who works on what, and who stops when."""

import threading
import time

import pytest

from lodestar.train.gate import Gate


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("num_pieces", [0, 1, 7])
def test_every_piece_is_worked_on_once(threads, num_pieces):
    done = []

    def work(piece):
        for turn in range(piece):
            done.append((piece, turn))
            yield

    gate = Gate(range(1, num_pieces + 1), period=1000)
    gate.run(work, threads, lambda: None)
    wanted = [(p, t) for p in range(1, num_pieces + 1) for t in range(p)]
    assert sorted(done) == wanted
    assert gate.steps == len(wanted)


def test_a_free_thread_takes_the_next_piece():
    others_done = threading.Event()
    left = list(range(9))

    def work(piece):
        if piece == 0:  # one long piece
            assert others_done.wait(60)
        else:
            left.remove(piece)
            if left == [0]:
                others_done.set()
        yield

    Gate(range(9), period=1000).run(work, 2, lambda: None)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_step_is_under_way_at_a_stop(threads):
    stepping = []
    stops = []

    def work(piece):
        for _ in range(25):
            stepping.append(piece)
            time.sleep(0.0005)
            stepping.remove(piece)
            yield

    def stop():
        stops.append(gate.steps)
        assert not stepping
        time.sleep(0.002)
        assert not stepping
        assert threading.current_thread() is threading.main_thread()

    gate = Gate(range(8), period=30)
    gate.run(work, threads, stop)
    assert gate.steps == 200
    for before, after in zip([0, *stops], stops, strict=False):
        # Those that were under way when the period ended are done, too.
        assert 30 <= after - before < 30 + threads


def test_the_first_error_ends_all_and_is_raised():
    turns = []

    def work(piece):
        while True:
            turns.append(piece)
            if piece == 1 and len(turns) > 20:
                raise KeyError("the first")
            time.sleep(0.0005)
            yield

    gate = Gate([0, 1], period=10**9)
    with pytest.raises(KeyError, match="the first"):
        gate.run(work, 2, lambda: None)
    count = len(turns)
    time.sleep(0.01)
    assert len(turns) == count
    assert gate.steps == count - 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_at_a_stop_ends_all(error):
    turns = []

    def work(piece):
        while True:
            turns.append(piece)
            yield

    def stop():
        raise error("at a stop")

    with pytest.raises(error, match="at a stop"):
        Gate(range(3), period=5).run(work, 3, stop)
    count = len(turns)
    time.sleep(0.01)
    assert len(turns) == count
