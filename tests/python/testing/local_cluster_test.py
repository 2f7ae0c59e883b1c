"""LocalCluster: tasks start, die and restart, and leave nothing behind."""

import os
import signal
import socket
import time

import pytest

from lodestar.testing import LocalCluster, local_cluster


def listens(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def all_end(processes):
    """Returns whether all of the processes end within a while."""
    for _ in range(600):
        if not any(os.path.exists(f"/proc/{p}") for p in processes):
            return True
        time.sleep(0.1)
    return False


def test_tasks_start_die_and_restart():
    with LocalCluster(ps=1, workers=2) as cluster:
        addresses = [a for tasks in cluster.spec.values() for a in tasks]
        assert len(set(addresses)) == 3 and all(map(listens, addresses))
        assert cluster.resolver.cluster_spec().as_dict() == cluster.spec
        cluster.kill("worker", 1)
        assert [listens(a) for a in addresses] == [True, True, False]
        cluster.start("worker", 1)
        assert all(map(listens, addresses))
    assert not any(map(listens, addresses))


def test_nothing_remains_of_a_killed_process():
    reader, writer = os.pipe()
    maker = os.fork()
    if not maker:
        try:
            signal.alarm(400)  # ends the child if this process is gone
            cluster = LocalCluster(ps=1, workers=1)
            processes = [cluster._forks.pid, *cluster.processes.values()]
            os.write(writer, " ".join(map(str, processes)).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader) as told:
        processes = [int(p) for p in os.read(told.fileno(), 1000).split()]
        assert len(processes) == 3
        os.kill(maker, signal.SIGKILL)
        os.waitpid(maker, 0)
    assert all_end(processes)


def test_a_task_that_cannot_start_is_named(monkeypatch, capfd):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(local_cluster, "hold_ports", lambda n: [taken] * n)
        with pytest.raises(RuntimeError, match="^ps 0 did not start.$"):
            LocalCluster()
    assert "ps 0: port" in capfd.readouterr().err


def test_a_held_port_is_nobody_elses_and_a_server_may_listen_there():
    (held,) = local_cluster.hold_ports(1)
    address = held.getsockname()
    with held, socket.socket() as other, socket.socket() as server:
        with pytest.raises(OSError, match="in use"):
            other.bind(address)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen()
        socket.create_connection(address).close()


def test_a_cluster_has_both_kinds():
    with pytest.raises(
        ValueError, match="`ps` must be an integer of at least 1"
    ):
        LocalCluster(ps=0)
    with pytest.raises(ValueError, match="workers"):
        LocalCluster(workers=0)
