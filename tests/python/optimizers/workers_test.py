"""Training by several workers, as real processes, equals training by one."""

import json

import pytest
from processes import Interpreter

from lodestar.testing.local_cluster import hold_ports

# One process imports what both need, and forks before TensorFlow runs. Each
# child runs all code; the first one also forwards it and reports for both.
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

def both(case, *arguments):
    print(json.dumps([case, arguments]), file=orders, flush=True)
    getattr(worker_cases, case)(worker_cases.own, *arguments)
    failure = json.loads(replies.readline())
    assert not failure, failure

def follow(orders, replies):
    begin(1)
    for line in orders:
        case, arguments = json.loads(line)
        try:
            getattr(worker_cases, case)(worker_cases.own, *arguments)
            failure = ""
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps(failure), file=replies, flush=True)

pipes = [os.pipe(), os.pipe()]
if not os.fork():
    os.close(0), os.close(pipes[0][1])
    follow(open(pipes[0][0]), open(pipes[1][1], "w"))
    os._exit(0)
os.close(pipes[0][0]), os.close(pipes[1][1])
orders, replies = open(pipes[0][1], "w"), open(pipes[1][0])
begin(0)
worker_cases.both = both
"""


@pytest.fixture(scope="module")
def two_workers():
    """Returns a function that runs a case of worker_cases.py in two processes."""
    held = hold_ports(2)
    ports = [socket.getsockname()[1] for socket in held]
    process = Interpreter(start=_START.format(ports=ports))

    def run(case, *arguments):
        process.run(
            "import json, sys, worker_cases as w; "
            "w.both(*map(json.loads, sys.argv[1:]))",
            *map(json.dumps, (case, *arguments)),
        )

    yield run
    process.kill()
    for socket in held:
        socket.close()


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
        "fit",
        "unequal",
    ],
)
def test_two_workers(case, two_workers):
    two_workers(case)


@pytest.mark.parametrize(
    "case", ["checkpoint", "snapshots", "unnamed", "stopped", "goes_on"]
)
def test_snapshots_resume_in_one_process_and_in_two(
    case, two_workers, tmp_path
):
    two_workers(case, str(tmp_path))
