"""Training by several workers, real processes, equals training by one."""

import concurrent.futures
import json
import socket

import pytest
from processes import Interpreter

_START = """
import os
os.environ["TF_CONFIG"] = {config!r}
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
import worker_cases
"""


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture(scope="module")
def two_workers():
    """Runs code in two processes at once, where `strategy` is theirs."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(2)]}
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        # Names of its own would go with the code that made them.
        start = _START.format(config=config) + "worker_cases.own = strategy\n"
        processes.append(Interpreter(start=start))

    def run(code):
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for done in [threads.submit(p.run, code) for p in processes]:
                done.result()

    yield run
    for process in processes:
        process.kill()


@pytest.mark.parametrize(
    "case",
    [
        "clipped",
        "eager",
        "loss_scaling",
        "not_finite",
        "collection",
        "refused",
        "import_and_assign",
    ],
)
def test_two_workers(case, two_workers):
    two_workers(f"import worker_cases as w; w.{case}(w.own)")


def test_a_checkpoint_goes_on_in_one_process_and_in_two(two_workers, tmp_path):
    folder = str(tmp_path)
    two_workers(f"import worker_cases as w; w.checkpoint(w.own, {folder!r})")
