"""Training by several workers, as real processes, equals training by one."""

import json

import pytest
from processes import Interpreter

from lodestar.testing.local_cluster import hold_ports

# One process imports what all need, and forks before TensorFlow runs. Each worker
# runs all code; the first one also forwards it and reports for all.
_START = """
import json, os, sys, traceback
import keras, numpy, tensorflow as tf, worker_cases
ports = {ports}

def begin(index):
    workers = [f"127.0.0.1:{{port}}" for port in ports]
    task = {{"type": "worker", "index": index}}
    config = {{"cluster": {{"worker": workers}}, "task": task}}
    os.environ["TF_CONFIG"] = json.dumps(config)
    worker_cases.own = tf.distribute.MultiWorkerMirroredStrategy()

def run_on_all(case, *arguments):
    for orders, _ in others:
        print(json.dumps([case, arguments]), file=orders, flush=True)
    getattr(worker_cases, case)(worker_cases.own, *arguments)
    for _, replies in others:
        failure = json.loads(replies.readline())
        assert not failure, failure

def follow(index, orders, replies):
    begin(index)
    for line in orders:
        case, arguments = json.loads(line)
        try:
            getattr(worker_cases, case)(worker_cases.own, *arguments)
            failure = ""
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps(failure), file=replies, flush=True)

others = []
for index in range(1, len(ports)):
    orders, replies = os.pipe(), os.pipe()
    if not os.fork():
        for earlier in others:
            earlier[0].close(), earlier[1].close()
        os.close(0), os.close(orders[1])
        follow(index, open(orders[0]), open(replies[1], "w"))
        os._exit(0)
    os.close(orders[0]), os.close(replies[1])
    others.append((open(orders[1], "w"), open(replies[0])))
begin(0)
worker_cases.run_on_all = run_on_all
"""


def start(count):
    """Yields a function that runs a case of worker_cases.py in all processes."""
    held = hold_ports(count)
    ports = [socket.getsockname()[1] for socket in held]
    process = Interpreter(start=_START.format(ports=ports))

    def run(case, *arguments):
        process.run(
            "import json, sys, worker_cases as w; "
            "w.run_on_all(*map(json.loads, sys.argv[1:]))",
            *map(json.dumps, (case, *arguments)),
        )

    yield run
    process.kill()
    for socket in held:
        socket.close()


@pytest.fixture(scope="module")
def two_workers():
    yield from start(2)


@pytest.fixture(scope="module")
def three_workers():
    yield from start(3)


@pytest.mark.parametrize(
    "case",
    [
        "clipped",
        "eager",
        "loss_scaling",
        "not_finite",
        "dense_not_finite",
        "few_examples",
        "collection",
        "occurrences",
        "refused",
        "import_and_assign",
        "fit",
        "unequal",
    ],
)
def test_two_workers(case, two_workers):
    two_workers(case)


@pytest.mark.parametrize("case", ["collection_of_dtypes", "bytes_per_step"])
def test_three_workers(case, three_workers):
    three_workers(case)


@pytest.mark.parametrize(
    "case", ["checkpoint", "snapshots", "unnamed", "stopped", "goes_on"]
)
def test_snapshots_resume_in_one_process_and_in_two(
    case, two_workers, tmp_path
):
    two_workers(case, str(tmp_path))
