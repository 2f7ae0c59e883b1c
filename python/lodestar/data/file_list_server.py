"""FileListServer: gives a list of files out to the iterators that ask for them."""

import socket
from typing import Self

import numpy as np
import tensorflow as tf

from lodestar._checks import check_at_least, check_flag, is_integer
from lodestar._library import gen_ops
from lodestar._resource import OwnedName
from lodestar._typing import StrPaths
from lodestar.data.record_dataset import as_paths
from lodestar.data.shared_file_list import FILES

# Else a pass would begin anew for who asks when all others are done with it.
_FOREVER_MS = 2**62 // 1000  # TensorFlow counts microseconds


class FileListServer:
    """Serves a list of files; `SharedFileList` is what takes part in it.

    It is a tf.data service of this process, which gives out paths alone: who
    reads a file opens it.

    >>> server = FileListServer(files)  # or host="chief", port=5050
    >>> server.address
    '...:...'

    It serves until `stop` is called, which the end of a `with` block does too, or
    the object is gone.

    Attributes:
        address: `"host:port"`, for `SharedFileList`.
    """

    def __init__(
        self,
        files: StrPaths,
        *,
        shuffle_files: bool = False,
        seed: int | None = None,
        host: str = "localhost",
        port: int = 0,
        worker_port: int = 0,
    ):
        """Begins to serve.

        Args:
            files: One path or several, given out in this order, and as they are:
                a relative one is relative for who reads it.
            shuffle_files: Whether each pass has an order of its own.
            seed: Fixes these orders; None draws them.
            host: The name by which the readers reach this machine.
            port: Of this machine, where readers begin; 0 takes a free one.
            worker_port: Another one, where they take files, as can whoever
                reaches both; 0 takes a free one.

        Raises:
            ValueError: `files` is empty, an argument is out of range, or the
                ports are one.
            OSError: A port cannot be used.
        """
        check_at_least("port", port, 0)
        check_at_least("worker_port", worker_port, 0)
        if port == worker_port != 0:
            raise ValueError(
                f"`port` and `worker_port` are both {port}, wanted two ports."
            )
        if seed is not None and not is_integer(seed):
            raise ValueError(
                f"`seed` must be an integer or None, found {seed!r}."
            )
        shuffle_files = check_flag("shuffle_files", shuffle_files)
        if seed is None:
            seed = int(np.random.default_rng().integers(2**63))
        paths = as_paths(files)
        for one in (port, worker_port):
            _check_port(one)
        self._list = OwnedName("FileListServer", _forget)
        self._seed = tf.constant(seed, tf.int64)
        self._put(paths)
        service = tf.data.experimental.service
        self._dispatcher = service.DispatchServer(
            service.DispatcherConfig(port=port, job_gc_timeout_ms=_FOREVER_MS)
        )
        found = self._dispatcher.target.rpartition(":")[2]
        self.address = f"{host}:{found}"
        # Only one: each would give out all files.
        self._worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=f"localhost:{found}",
                worker_address=f"{host}:%port%",
                port=worker_port,
            )
        )
        service.register_dataset(
            self._dispatcher.target,
            _passes(self._list.text, shuffle_files),
            # To decompress, iterators would ask for more paths ahead.
            compression=None,
            dataset_id=FILES,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def set_files(self, files: StrPaths) -> None:
        """Gives out other files in the passes that begin from here on.

        A pass begins when the first iterator asks for a file of it.

        Raises:
            ValueError: `files` is empty. They stay as they were.
        """
        self._put(as_paths(files))

    def _put(self, paths: list[str]) -> None:
        gen_ops.lodestar_file_list_put(
            list=self._list.text,
            filenames=tf.constant(paths),
            seed=self._seed,
        )

    def stop(self) -> None:
        """Serves no longer; iterators that are under way wait for more."""
        self._worker.stop()
        self._dispatcher.stop()


def _check_port(port: int) -> None:
    # TensorFlow's server would share it with another one that has it.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            raise OSError(f"port {port} cannot be used: {error}") from error


def _passes(name: str, shuffle: bool) -> tf.data.Dataset:
    """Of which each iteration is a pass.

    Without Python: a service that stops holds the lock of the interpreter, and
    would wait for it.
    """

    @tf.autograph.experimental.do_not_convert
    def files(name: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            gen_ops.lodestar_file_list_next(list=name, shuffle=shuffle)
        )

    options = tf.data.Options()
    # That a list is known by its name is no reason to warn.
    options.experimental_external_state_policy = (
        tf.data.experimental.ExternalStatePolicy.IGNORE
    )
    return (
        tf.data.Dataset.from_tensors(name).flat_map(files).with_options(options)
    )


def _forget(name: str) -> None:
    gen_ops.lodestar_file_list_forget(list=name)
