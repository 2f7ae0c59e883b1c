"""Tables on the tasks of a cluster: each writes and reads its own part."""

_CLUSTER = """
import os, pathlib, sys
import numpy as np, tensorflow as tf
import lodestar
from lodestar import snapshot

os.chdir(sys.argv[1])
cluster = lodestar.testing.LocalCluster(ps=3, workers=1)
strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)
servers = [f"/job:ps/task:{i}" for i in range(3)]

def table(devices, **options):
    return lodestar.EmbeddingVariable(4, name="t", devices=devices, **options)

def rows_of(table):
    rows = table.export()
    return dict(zip(rows.ids.numpy().tolist(), rows.rows.numpy().tolist()))

def error_of(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError("no error")

# Not the servers' working directory: paths are relative to this process.
two = table(servers[:2])
two.insert_or_assign(range(100), np.ones((100, 4)))
snapshot.save(two, "s")
two.remove(range(10))
two.insert_or_assign([7, 200], np.full((2, 4), 2.0))
info = snapshot.save(two, "s", delta=True)
assert (info.kind, info.rows, info.removed) == ("delta", 2, 10)
assert len(info.tables["t"].files) == 2
for devices in (servers, servers[2:], None):
    new = table(devices)
    assert snapshot.restore(new, "s").restored == {"t": 92}
    assert rows_of(new) == rows_of(two)

# Errors on a server are the same as in this process.
part = pathlib.Path("s/00000001/table-00000-part-00001-of-00002")
data = bytearray(part.read_bytes())
data[-200] ^= 1
part.write_bytes(data)
three = table(servers)
three.insert_or_assign([5], np.zeros((1, 4)))
error = error_of(snapshot.restore, three, "s", version=2)
assert isinstance(error, snapshot.CorruptSnapshotError), error
assert f"'{part.absolute()}', byte " in str(error), error
# Parts 1 and 2 of 3 have ids of part 1 of 2.
assert str(error).endswith(
    ("(from /job:ps/replica:0/task:1)", "(from /job:ps/replica:0/task:2)")
), error
assert list(rows_of(three)) == [5]
data[-200] ^= 1
part.write_bytes(data)

# A server lost during the write leaves no version.
two.insert_or_assign([300, 301, 302], np.ones((3, 4)))
cluster.kill("ps", 1)
error = error_of(snapshot.save, two, "s", delta=True)
assert isinstance(error, tf.errors.OpError), error
assert [v.version for v in snapshot.versions("s")] == [1, 2]
# The remaining cluster resumes from the last version.
left = table([servers[0], servers[2]])
assert snapshot.restore(left, "s").restored == {"t": 92}
left.insert_or_assign([400], np.ones((1, 4)))
info = snapshot.save(left, "s", delta=True)
assert (info.version, info.kind, info.rows) == (3, "delta", 1)
cluster.close()
"""


def test_each_server_writes_its_part(fresh_process, tmp_path):
    fresh_process.run(_CLUSTER, tmp_path)
