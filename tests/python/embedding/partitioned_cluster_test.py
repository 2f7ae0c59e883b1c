"""Tables partitioned over the tasks of a cluster, as processes on this machine."""

from processes import Interpreter

_LOOPS = """
import sys
import keras, numpy as np, tensorflow as tf
import lodestar

cluster = lodestar.testing.LocalCluster(ps=2, workers=1)
strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)
options = {"seed": (3, 5), "name": "t"}
servers = [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2)]

def wrap(inner):
    return lodestar.optimizers.wrap(inner)

def step_of(table, optimizer):
    def step(ids):
        with tf.GradientTape() as tape:
            rows = table.lookup(ids, combiner="mean", training=True)
            loss = tf.reduce_mean((tf.reduce_sum(rows, 1) - 1.0) ** 2)
        gradient = tape.gradient(loss, table)
        optimizer.apply([gradient], [table])
        return loss
    return step

def batches():
    rng = np.random.default_rng(2)
    for _ in range(6):
        lengths = rng.integers(0, 4, 8)
        values = tf.constant(rng.integers(-30, 30, lengths.sum()), tf.int64)
        yield tf.RaggedTensor.from_row_lengths(values, lengths)

def assert_same(a, b):
    a, b = a.export(), b.export()
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.rows, b.rows)
    np.testing.assert_array_equal(a.frequencies, b.frequencies)
    for name in b.optimizer_slots:
        np.testing.assert_array_equal(
            a.optimizer_slots[name], b.optimizer_slots[name]
        )

here = lodestar.EmbeddingVariable(4, **options)

there = lodestar.EmbeddingVariable(
    4, devices=["/job:ps/task:0", "/job:ps/task:1"], **options
)
spec = tf.RaggedTensorSpec([None, None], tf.int64)
for table in (here, there):
    optimizer = wrap(keras.optimizers.Adam(0.1))
    optimizer.build([table])
    eager = step_of(table, optimizer)
    graph = tf.function(eager, input_signature=[spec], autograph=False)
    for i, ids in enumerate(batches()):
        (graph if i % 2 else eager)(ids)
assert_same(there, here)
assert sum(there.stats()["per_part"]["rows"]) == int(here.size())
assert min(there.stats()["per_part"]["rows"]) > 0
shown = tf.convert_to_tensor(there).numpy().tolist()
assert sorted(shown) == sorted(there.export().rows.numpy().tolist())
path = tf.train.Checkpoint(t=there).write(sys.argv[1])
again = lodestar.EmbeddingVariable(4, **options)
tf.train.Checkpoint(t=again).read(path).assert_consumed()
assert_same(again, here)
kept = []
there.on_evict = lambda *evicted: kept.append(evicted)
here_step = int(here.step)
for evict in (there.evict, tf.function(there.evict, autograph=False)):
    again.load_rows(there.export())
    for table in (again, there):
        table.set_step(here_step + 100 - len(kept))
    policy = lodestar.MinFrequency(2 + len(kept))
    wanted = again.evict(policy, return_rows=True)
    found = evict(policy, return_rows=True)
    for a, b, c in zip(wanted, found, kept[-1], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert len(kept[-1][0]) > 0
assert_same(there, again)
there.load_rows(here.export())
module = tf.Module()
module.t = there
try:
    tf.saved_model.save(module, sys.argv[1] + "_saved_model")
except NotImplementedError as error:
    assert "needs its rows in one process" in str(error), error
else:
    raise AssertionError("a table on servers was exported")

# Under the strategy, without devices, and through its coordinator.
with strategy.scope():
    layer = lodestar.layers.DynamicEmbedding(4, **options)
    optimizer = wrap(keras.optimizers.Adam(0.1))
    optimizer.build([layer.table])
assert list(layer.table.devices) == servers
assert layer.get_config()["devices"] is None
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
step = tf.function(
    step_of(layer.table, optimizer), input_signature=[spec], autograph=False
)
for ids in batches():
    coordinator.schedule(step, args=(ids,))
    coordinator.join()
assert_same(layer.table, here)
"""


def test_rows_lie_on_servers(fresh_process, tmp_path):
    fresh_process.run(_LOOPS, tmp_path / "c")


_BARE = """
import subprocess, sys
import tensorflow as tf
import lodestar

(held,) = lodestar.testing.local_cluster.hold_ports(1)
address = f"127.0.0.1:{held.getsockname()[1]}"
code = '''
import sys, tensorflow as tf
server = tf.distribute.Server(
    {"ps": [sys.argv[1]]}, job_name="ps", task_index=0, protocol="grpc"
)
print("up", flush=True)
sys.stdin.read()
'''
server = subprocess.Popen(
    [sys.executable, "-c", code, address],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
)
assert server.stdout.readline() == "up\\n"
cluster = tf.train.ClusterSpec({"ps": [address]})
tf.config.experimental_connect_to_cluster(cluster)
try:
    lodestar.EmbeddingVariable(4, devices=["/job:ps/task:0"], name="t")
except tf.errors.FailedPreconditionError as error:
    message = error.message
finally:
    server.kill()
wanted = (
    "The table 't' needs /job:ps/task:0/device:CPU:0, which has not loaded "
    "lodestar. Import lodestar in that process before its server starts"
)
assert wanted in message, message
"""


def test_a_server_without_the_library_is_refused():
    with Interpreter() as process:
        process.run(_BARE)
