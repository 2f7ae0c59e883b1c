"""Tests of the tables that programs leave on a cluster's servers."""

import json
import subprocess
import sys

import pytest
from processes import Interpreter, environment

import lodestar

# Connects the programs below, and checks for another program's table.
_CONNECT = """
import __main__, faulthandler, json, sys
import tensorflow as tf
import lodestar
from lodestar import _servers
from lodestar._library import gen_ops

faulthandler.dump_traceback_later(240, exit=True)
tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(json.loads(sys.argv[1])), rpc_layer="grpc"
    )
)
server = "/job:ps/task:0"

def rows(container, shared_name):
    with tf.device(server):
        table = gen_ops.lodestar_embedding_variable(
            dim=2, container=container, shared_name=shared_name
        )
        return int(gen_ops.lodestar_embedding_size(table))
"""
# Creates a table, and writes its name.
_MAKE = """
table = lodestar.EmbeddingVariable(2, devices=[server], name="t")
table.insert_or_assign([1, 2, 3], [[1.0, 1.0]] * 3)
(part,) = table._parts
made = (_servers.claim(server + "/device:CPU:0").program, part._unique_name)
assert rows(*made) == 3
with open(sys.argv[2], "w") as file:
    json.dump(made, file)
__main__.table, __main__.rows = table, rows  # for the code that runs next
"""
_ASSERT_GONE = """
with open(sys.argv[2]) as file:
    assert rows(*json.load(file)) == 0
"""
_REFUSED = """
try:
    lodestar.EmbeddingVariable(2, devices=[server], name="t")
except tf.errors.FailedPreconditionError as error:
    print(error.message)
"""


@pytest.fixture(scope="module")
def spec():
    """Returns the cluster that the programs connect to, as JSON."""
    with lodestar.testing.LocalCluster() as cluster:
        yield json.dumps(cluster.spec)


def _run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_a_program_removes_its_tables_at_exit(spec, tmp_path):
    made = tmp_path / "made"
    _run(_CONNECT + _MAKE, spec, made)
    _run(_CONNECT + _ASSERT_GONE, spec, made)


def test_the_tables_of_a_killed_program_go_with_its_claim(spec, tmp_path):
    killed, running = tmp_path / "killed", tmp_path / "running"
    with Interpreter() as process:  # ends without Python's cleanup
        process.run(_CONNECT + _MAKE, spec, killed)
    with Interpreter() as process:
        # The lease of the killed program expires soon.
        process.run(_CONNECT + "_servers._LEASE = 1.0\n" + _MAKE, spec, running)
        process.run(
            "import __main__, json, sys\n"
            "with open(sys.argv[1]) as file:\n"
            "    assert __main__.rows(*json.load(file)) == 0",
            killed,
        )
        refused = _run(_CONNECT + _REFUSED, spec)
        program = json.loads(running.read_text())[0]
        assert f"belongs to the running program {program}" in refused
        process.run("import __main__; assert __main__.table.size() == 3")
