"""`python -m lodestar.train server`: the process, its end, and its errors."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from lodestar.testing.local_cluster import hold_ports
from lodestar.train.__main__ import main


@pytest.fixture
def port():
    (held,) = hold_ports(1)
    with held:
        yield held.getsockname()[1]


def test_a_server_runs_until_sigterm(port):
    config = {
        "cluster": {"ps": [f"127.0.0.1:{port}"]},
        "task": {"type": "ps", "index": 0},
    }
    with subprocess.Popen(
        [sys.executable, "-m", "lodestar.train", "server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TF_CONFIG": json.dumps(config),
        },
    ) as process:
        try:
            assert process.stdout.readline().startswith(
                f"ps 0 listens on port {port}, Lodestar "
            )
            socket.create_connection(("127.0.0.1", port)).close()
            process.terminate()
            output, errors = process.communicate()
        finally:
            process.kill()
    # Some releases of TensorFlow log that the server has started.
    notes = re.compile(r"I\d{4} |WARNING: All log messages before absl::")
    said = [line for line in errors.splitlines() if not notes.match(line)]
    assert (process.returncode, output, said) == (0, "", [])


def test_a_port_in_use_is_one_line(port, capsys):
    cluster = json.dumps({"worker": ["a:1", f"127.0.0.1:{port}"]})
    flags = ["--cluster", cluster, "--job", "worker", "--task", "1"]
    before = signal.getsignal(signal.SIGTERM)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        assert main(["server", *flags]) == 2
    assert capsys.readouterr().err == (
        f"lodestar.train: worker 1: port {port} of this host: Address already "
        "in use\n"
    )
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_wrong_configuration_is_one_line(capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert main(["server"]) == 2
    assert capsys.readouterr().err == (
        "lodestar.train: The cluster is unknown. Set TF_CONFIG, or pass "
        "--cluster, --job and --task.\n"
    )
    with pytest.raises(SystemExit, match="2"):
        main(["server", "--task", "-1"])
    with pytest.raises(SystemExit, match="2"):
        main([])
    errors = capsys.readouterr().err
    assert errors.count("\n") == 2 and "-1 is not in the range x>=0" in errors
