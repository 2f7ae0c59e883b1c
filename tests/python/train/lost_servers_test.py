"""fit and predict when a parameter server dies, stops or restarts empty."""

import pytest
from processes import run_program


@pytest.mark.parametrize(
    "name",
    [
        "all_workers_restart_and_a_server_is_lost",
        "a_server_has_stopped",
        "a_server_comes_back_empty",
        "a_server_is_lost_before_training",
    ],
)
def test_a_lost_server_is_named(name, fork):
    # A program connects to one cluster, and loses one server of it.
    fork(run_program, "lost_servers_programs", name).read()
