"""Compares the simulation of many servers with independent calculations."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scale import simulation as scale
from benchmarks.scale import tables

DOCS = Path(__file__).resolve().parents[3] / "docs"
LOAD = scale.Load(rows=10**6, ids=4096)
FIGURES = scale.Figures(
    dim=32,
    row_bytes=300.0,
    lookup_ns=100.0,
    id_ns=300.0,
    server_call_us=1000.0,
    worker_us=2000.0,
    worker_call_us=500.0,
    worker_id_ns=80.0,
    program_us=8000.0,
    step_bytes=40_000.0,
    call_bytes=12_000.0,
    call_us=500.0,
    slow_share=0.01,
    slow_ms=5.0,
)


def test_ranks_follow_the_law():
    rows, draws = 3_000_000, 400_000
    zipf = scale.Zipf(rows, 1.05)
    places = zipf.draw(np.random.default_rng(1), draws)
    assert places.min() >= 1 and places.max() <= rows
    weights = np.arange(1, rows + 1) ** -1.05
    cumulated = np.cumsum(weights / weights.sum())
    for bound in (1, 10, 1000, 2**20, 2_000_000):
        share = (places <= bound).mean()
        assert share == pytest.approx(cumulated[bound - 1], abs=0.004)


@pytest.mark.parametrize("exponent", [0.8, 1.0, 2.0])
def test_all_ranks_can_occur(exponent):
    places = scale.Zipf(2, exponent).draw(np.random.default_rng(0), 1000)
    assert set(places) == {1, 2}


def test_predictions_are_reproducible():
    found = scale.predict(8, FIGURES, LOAD, steps=5, seed=3)
    assert found == scale.predict(8, FIGURES, LOAD, steps=5, seed=3)
    assert found != scale.predict(8, FIGURES, LOAD, steps=5, seed=4)


def test_one_server():
    figures = dataclasses.replace(FIGURES, slow_share=0.0)
    found = scale.predict(1, figures, LOAD, steps=5)
    assert found.fan_out == found.skew == found.skew_of_load == 1
    assert found.bytes == pytest.approx(found.distinct * 2 * 136 + 52_000)
    assert found.worker_cpu_ms == pytest.approx(2.5 + 4096 * 80e-6)
    assert found.servers_cpu_ms == pytest.approx(1 + found.distinct * 300e-6)
    # CPU times add up, with three round trips; the network takes the rest.
    both = found.worker_cpu_ms + found.servers_cpu_ms + 0.3
    wire = found.bytes / 2 / 1.25e9 * 1e3
    assert found.step_ms == pytest.approx(both + wire)
    assert found.lookups_per_second == pytest.approx(16 / 100e-9)


def test_servers_that_share_cores():
    figures = dataclasses.replace(FIGURES, slow_share=0.0)
    shared = dataclasses.replace(LOAD, shared_cores=2)
    apart, together = (
        scale.predict(8, figures, load, steps=5) for load in (LOAD, shared)
    )
    waits = together.step_ms - apart.step_ms
    # Half of the total server time instead of the longest server's time.
    assert waits == pytest.approx(together.servers_cpu_ms / 2 * 3 / 4, rel=0.1)


def test_more_servers():
    few, many = (scale.predict(n, FIGURES, LOAD, steps=20) for n in (8, 512))
    # The number of ids sent does not depend on the number of servers.
    assert few.distinct == many.distinct
    assert many.bytes - few.bytes == pytest.approx(504 * 12_000)
    assert few.fan_out == 8 and 400 < many.fan_out <= 512
    # Unique ids are balls in bins; without deduplication the skew is larger.
    assert 1 < few.skew < many.skew < many.skew_of_all
    assert few.late_ms < many.late_ms
    assert few.busy["memory"] == 64 * many.busy["memory"]
    assert few.lookups_per_second < many.lookups_per_second
    assert many.first == max(many.busy, key=many.busy.get)


def test_slow_calls_of_many_servers():
    """A step is late if any of its n calls is: 1 - (1 - p) ** n of all steps."""
    for servers, wanted in ((16, 0.15), (128, 0.72)):
        late = scale._latest(np.random.default_rng(0), FIGURES, (2000, servers))
        assert (late > 0).mean() == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("servers, steps", [(0, 1), (1, 0)])
def test_bad_arguments(servers, steps):
    with pytest.raises(ValueError, match="must be at least 1"):
        scale.predict(servers, FIGURES, steps=steps)
    with pytest.raises(ValueError, match="must be above 0"):
        scale.Zipf(0, 1.0)


def step_line(servers, ids, distinct):
    """A measured step with exactly the numbers of FIGURES."""
    return {
        "kind": "step",
        "servers": servers,
        "ids": ids,
        "distinct": distinct,
        "bytes": 40_000 + 12_000 * servers + 272 * distinct,
        "program_cpu": 1e-3,
        "ps_cpu": 1e-3 * servers + 300e-9 * distinct,
        "worker_cpu": 2e-3 + 500e-6 * servers + 80e-9 * ids,
        "seconds": 0.02,
    }


MEASURED = [
    {"kind": "machine", "cores": 2},
    {
        "kind": "calls",
        "usual_us": 500.0,
        "slow_share": 0.01,
        "slow_ms": 5.0,
        "ps_cpu": 50e-6,
    },
    {"kind": "lookup", "distinct": 20_000, "ps_cpu": 50e-6 + 2e-3},
    {"kind": "row", "dim": 32, "row_bytes": 300.0},
    *(
        step_line(servers, *batch)
        for servers in (1, 2)
        for batch in ((8192, 4000), (32_768, 12_000))
    ),
]


def test_fitted_figures_match_the_generated_ones():
    found = dataclasses.asdict(scale.fitted(MEASURED))
    assert found == pytest.approx(dataclasses.asdict(FIGURES), rel=1e-3)


def test_predictions_compared_with_measured_steps():
    measured = [*MEASURED, step_line(4, 65_536, 21_600.0)]
    (pair,) = scale.held_against(measured, scale.fitted(measured))
    assert pair["servers"] == 4
    for name in ("distinct", "megabytes", "worker_ms", "servers_ms"):
        value = pair[name]
        assert value["predicted"] == pytest.approx(value["measured"], rel=0.02)
    assert pair["step_ms"]["measured"] == 20


def test_the_page_shows_what_the_simulation_prints():
    page = (DOCS / "internals/scale.md").read_text()
    for table in tables.tables():
        assert "\n".join(table) in page
