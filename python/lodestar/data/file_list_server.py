"""FileListServer: distributes a list of files to iterators on request."""

import socket
from typing import Self

import numpy as np
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count, check_flag, is_integer
from lodestar._library import gen_ops
from lodestar._resource import OwnedName
from lodestar._typing import StrPaths
from lodestar.data.record_dataset import as_paths
from lodestar.data.shared_file_list import FILES

# Prevents a finished epoch from restarting for a late iterator.
_FOREVER_MS = 2**62 // 1000  # TensorFlow counts microseconds


class FileListServer:
    """Serves a list of files to `SharedFileList`s.

    It runs a tf.data service in this process. The service sends paths only; readers
    open the files themselves.

    >>> server = FileListServer(files)  # or host="chief", port=5050
    >>> server.address
    '...:...'

    It serves until `stop` is called, the `with` block ends, or the object is deleted.

    Attributes:
        address: `"host:port"`, for `SharedFileList`.
    """

    @explained()
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
        """Starts the server.

        Args:
            files: One path or several, given out in this order. Paths are sent
                unchanged; a relative path is resolved by its reader.
            shuffle_files: Whether to shuffle the files in each epoch.
            seed: Seed for shuffling. None draws a random seed.
            host: Name by which readers reach this machine.
            port: Port to which readers connect. 0 selects a free port.
            worker_port: Port from which readers request files. Readers must be able
                to reach both ports. 0 selects a free port.

        Raises:
            ValueError: `files` is empty, an argument is out of range, or both ports
                are equal.
            OSError: A port cannot be used.
        """
        check_count("port", port, 0)
        check_count("worker_port", worker_port, 0)
        if port == worker_port != 0:
            raise ValueError(
                f"`port` and `worker_port` must differ, got {port}."
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
        # Use one worker only, since each worker would serve all files.
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
            # Decompression would request more paths ahead.
            compression=None,
            dataset_id=FILES,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def set_files(self, files: StrPaths) -> None:
        """Replaces the files for the epochs that start after this call.

        An epoch starts when the first iterator requests one of its files.

        Raises:
            ValueError: `files` is empty. The files are not replaced.
        """
        self._put(as_paths(files))

    def _put(self, paths: list[str]) -> None:
        gen_ops.lodestar_file_list_put(
            list=self._list.text,
            filenames=tf.constant(paths),
            seed=self._seed,
        )

    def stop(self) -> None:
        """Stops the server; active iterators wait for a new one."""
        self._worker.stop()
        self._dispatcher.stop()


def _check_port(port: int) -> None:
    # TensorFlow's server would share a port that is already in use.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            raise OSError(f"port {port} cannot be used: {error}") from error


def _passes(name: str, shuffle: bool) -> tf.data.Dataset:
    """Returns a dataset of which each iteration is an epoch.

    It calls no Python function: a service that stops holds the interpreter lock, so
    waiting for Python would deadlock.
    """

    @tf.autograph.experimental.do_not_convert
    def files(name: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            gen_ops.lodestar_file_list_next(list=name, shuffle=shuffle)
        )

    options = tf.data.Options()
    # Referring to the list by name needs no warning.
    options.experimental_external_state_policy = (
        tf.data.experimental.ExternalStatePolicy.IGNORE
    )
    return (
        tf.data.Dataset.from_tensors(name).flat_map(files).with_options(options)
    )


def _forget(name: str) -> None:
    gen_ops.lodestar_file_list_forget(list=name)
