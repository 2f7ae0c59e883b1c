"""Servers that hold resources of this program in other processes.

A program claims a server before it creates anything there, and renews the claim while
it runs, on its own connections and threads. A lost server is noticed whatever
TensorFlow is waiting for. Other programs cannot use a server that belongs to a running
program. A program removes its resources from the servers when it exits. The resources
of a killed program are removed by the next program that claims the server.
"""

import atexit
import contextlib
import functools
import os
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops

_Result = TypeVar("_Result")

# Seconds between two renewals of a claim.
_INTERVAL = 1.0
# Seconds within which a server answers a request.
_DEADLINE = 3.0
# Consecutive unanswered requests after which a server is lost.
_MISSES = 5
# Seconds without renewal after which the claim of another program lapses.
_LEASE = 30.0
# The client's half of an HTTP/2 handshake: the preface and empty SETTINGS.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex(
    "000000040000000000"
)

_LOCK = threading.Lock()
# Servers by job and task.
_SERVERS: dict[tuple[str, int], "Server"] = {}
# Notified when a server is lost and when a call in `run` is done.
_CHANGED = threading.Condition()
# Idle threads of `_new_caller`: starting a thread for each call is slow.
_IDLE: list[queue.SimpleQueue[Callable[[], None]]] = []


@functools.cache
def _program(process: int) -> str:
    """Returns the name of a program, and of its container on each server."""
    name = f"{socket.gethostname()}-{process}-{uuid.uuid4().hex}"
    # Containers do not allow all characters of host names.
    return re.sub("[^A-Za-z0-9.]", "-", name)


class Server:
    """One process of the cluster, from its claim until it is lost.

    Args:
        job: Job of the task.
        task: Index of the task.
        address: `host:port` of the task.

    Attributes:
        name: Job and index, as in messages.
        program: Name of this program, and of its container on the server.
        lost: UnavailableError with the reason, once the process is gone or no
            longer holds the resources of this program, else None.

    Raises:
        tf.errors.FailedPreconditionError: The server belongs to another running
            program.
        tf.errors.UnavailableError: The server does not answer.
    """

    def __init__(self, job: str, task: int, address: str):
        self.name = f"{job} {task}"
        # A forked process is another program.
        self.program = _program(os.getpid())
        self.lost: tf.errors.UnavailableError | None = None
        self._address = address
        self._misses = 0
        # Serializes requests.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        device = f"/job:{job}/task:{task}"
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device}/device:CPU:0"):
            program = tf.constant(self.program)
            self._claim_op = gen_ops.lodestar_claim_server(program, _LEASE)
            self._release_op = gen_ops.lodestar_release_server(program)
        # A session has its own connection and deadlines, and does not raise errors
        # of earlier eager ops.
        self._session = tf.compat.v1.Session(
            f"grpc://{address}",
            graph,
            tf.compat.v1.ConfigProto(
                device_filters=[device],
                operation_timeout_in_ms=int(1000 * _DEADLINE),
            ),
        )
        self._claim()
        self._check_connection(device)
        threading.Thread(
            target=self._watch, name=f"lodestar-{self.name}", daemon=True
        ).start()

    def check(self) -> bool:
        """Renews the claim; returns whether the server still holds it."""
        with self._lock:
            if self.lost is None and not self._ended.is_set():
                reason = self._renew()
                if reason is not None:
                    self._lose(reason)
            return self.lost is None

    def release(self) -> None:
        """Removes everything that this program has created on the server."""
        self._ended.set()
        with self._lock, contextlib.suppress(tf.errors.OpError):
            if self.lost is None:
                self._session.run(self._release_op)
                self._session.close()

    def _lose(self, reason: str) -> tf.errors.UnavailableError:
        kind = "parameter server " if self.name.startswith("ps ") else ""
        error = tf.errors.UnavailableError(
            None,
            None,
            f"The {kind}{self.name} is gone, and its part of the model with "
            f"it: {reason}. Restart a cluster, of any size, and this program; "
            "training can resume from the last snapshot.",
        )
        with _CHANGED:
            self.lost = error
            _CHANGED.notify_all()
        return error

    def _claim(self) -> None:
        before = -1.0
        while True:
            try:
                owner, silence = self._session.run(self._claim_op)
            except (
                tf.errors.DeadlineExceededError,
                tf.errors.UnavailableError,
            ) as error:
                raise self._lose(f"{self._address} does not answer") from error
            owner = owner.decode()
            if owner in ("", self.program) or silence >= _LEASE:
                return
            if silence < before:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"The server {self.name} ({self._address}) belongs to the "
                    f"running program {owner}. A cluster serves one program at "
                    "a time. Wait until that program has ended, or start "
                    "another cluster.",
                )
            # Wait until that program renews its claim or the claim lapses.
            before = silence
            time.sleep(_INTERVAL / 4)

    def _check_connection(self, device: str) -> None:
        """Checks that eager ops run in the process that was claimed."""
        try:
            with tf.init_scope(), tf.device(f"{device}/device:CPU:0"):
                owner, _ = gen_ops.lodestar_claim_server(self.program, _LEASE)
                same = owner.numpy().decode() == self.program
        except (tf.errors.AbortedError, tf.errors.UnavailableError):
            same = False
        if not same:
            raise self._lose(
                "its process was restarted after this program had connected "
                "to it"
            )

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL):
            if not self.check():
                # Calls would wait for a stopped process or a lost machine as long
                # as they are connected to it.
                self._disconnect()

    def _renew(self) -> str | None:
        """Renews the claim; returns why the server is lost, or None."""
        try:
            owner, _ = self._session.run(self._claim_op)
        except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
            try:
                self._shake_hands()
            except ConnectionRefusedError:
                return f"nothing listens on {self._address}"
            except OSError:
                self._misses += 1
            else:
                self._misses = 0  # it is busy
            if self._misses < _MISSES:
                return None
            return f"{self._address} has stopped answering"
        except tf.errors.AbortedError:
            return "its process was restarted"  # it has no such session
        except tf.errors.OpError as error:
            return error.message.strip().splitlines()[-1]
        self._misses = 0
        if owner.decode() == self.program:
            return None
        return "another program has claimed it"

    def _disconnect(self) -> None:
        """Shuts down all connections of this process to the server."""
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(*self._host_and_port())
            peers = {address[:2] for *_, address in found}
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    _shut_down_if_connected(os.dup(int(name)), peers)

    def _shake_hands(self) -> None:
        """Raises OSError unless a gRPC server answers on the port.

        Its answering threads do nothing else, however busy the server is.
        """
        address = self._host_and_port()
        with socket.create_connection(address, _DEADLINE) as connection:
            connection.sendall(_HTTP2_PREFACE)
            if not connection.recv(1):
                raise ConnectionResetError

    def _host_and_port(self) -> tuple[str, int]:
        host, _, port = self._address.rpartition(":")
        return host.strip("[]"), int(port)


def _shut_down_if_connected(
    descriptor: int, peers: Container[tuple[Any, ...]]
) -> None:
    """Shuts down the socket of a descriptor, which it closes."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:  # no socket
        os.close(descriptor)
        return
    with connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return
        host, port, *_ = connection.getpeername()
        if (host.removeprefix("::ffff:"), port) in peers:
            connection.shutdown(socket.SHUT_RDWR)


def claim(device: str | None) -> Server | None:
    """Claims the server of a device for this program.

    Returns None if the device is in this process or the address of its server is
    unknown. Raises as `Server`.
    """
    spec = tf.DeviceSpec.from_string(device or "")
    if spec.job in (None, "localhost"):
        return None
    key = (spec.job, spec.task or 0)
    address = _private.addresses_of_cluster().get(key)
    if address is None:
        return None
    with _LOCK:
        server = _SERVERS.get(key)
        if server is None or server.lost is not None:
            server = _SERVERS[key] = Server(*key, address)
        return server


def _new_caller() -> queue.SimpleQueue[Callable[[], None]]:
    """Starts a thread that calls the functions of the returned queue."""
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            calls.get()()

    threading.Thread(target=serve, daemon=True).start()
    return calls


class Servers:
    """Servers that calls depend on."""

    def __init__(self, servers: Iterable[Server | None]):
        self._servers = [s for s in servers if s is not None]

    def lost(self, ask: bool = False) -> tf.errors.UnavailableError | None:
        """Returns the error that names a lost server, optionally asking all first."""
        for server in self._servers:
            if server.lost is not None or (ask and not server.check()):
                return server.lost
        return None

    def check(self) -> None:
        """Raises UnavailableError if a server is known to be lost."""
        error = self.lost()
        if error is not None:
            raise error.with_traceback(None)

    @contextlib.contextmanager
    def naming_lost(self) -> Iterator[None]:
        """Makes errors caused by a lost server name it."""
        self.check()
        try:
            yield
        except Exception as error:
            lost = self.lost(ask=True)
            if lost is None or lost is error:
                raise
            raise lost from error

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Calls a function in another thread, and raises if a server is lost.

        The function may then still be running.
        """
        self.check()
        results: list[Any] = []

        def call() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            _IDLE.append(caller)
            with _CHANGED:
                results.append((result, error))
                _CHANGED.notify_all()

        try:
            caller = _IDLE.pop()
        except IndexError:
            caller = _new_caller()
        caller.put(call)
        with _CHANGED:
            _CHANGED.wait_for(lambda: results or self.lost() is not None)
        if not results:
            self.check()
        result, error = results[0]
        if error is not None:
            raise error
        return result


@atexit.register
def _release_all() -> None:
    threads = [
        threading.Thread(target=server.release, daemon=True)
        for server in _SERVERS.values()
        if server.program == _program(os.getpid())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * _DEADLINE)
