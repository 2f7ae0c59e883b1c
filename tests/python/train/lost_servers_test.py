"""fit and predict when a parameter server dies, stops or comes back empty."""

import pytest
from processes import Interpreter


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("all_workers_restart_and_a_server_is_lost", ()),
        ("a_server_has_stopped", ("round",)),
        ("a_server_has_stopped", ("validation",)),
        ("a_server_comes_back_empty", ()),
        ("a_server_is_lost_before_training", ()),
    ],
)
def test_a_lost_server_is_named(name, arguments):
    # A program connects to one cluster, and loses one server of it.
    with Interpreter() as process:
        process.run(
            "import lost_servers_programs as programs\n"
            f"programs.{name}(*{arguments!r})"
        )
