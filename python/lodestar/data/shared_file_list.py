"""SharedFileList: distributes files among iterators, also across processes.

The list is a dataset of TensorFlow's tf.data service. One worker of the service, in
the serving process, gives each element to the first iterator that requests it.
"""

import os
from collections.abc import Iterator

import tensorflow as tf

# The server's names for the list, and for the job that iterators share.
FILES = "files"
PATH_SPEC = tf.TensorSpec([], tf.string)


class SharedFileList:
    """The files of a `FileListServer`, each given to one iterator on request.

    Pass it to `open_dataset` in place of MultiSlot, Norm or Raw files. Each file is
    read by exactly one of the iterators, in any process or thread, so slow readers
    read fewer files. No batch contains examples of two files.

    >>> files = SharedFileList(server.address)
    >>> dataset = lodestar.data.open_dataset(
    ...     files, "schema.yaml", format="multislot")
    >>> model.fit(dataset)
    >>> for path in files.paths():
    ...     memory.load(path)  # an InMemoryDataset

    **Epochs.** The n-th iteration over a dataset takes part in the n-th epoch over the
    files. `repeat`, each epoch of `model.fit`, and workers of `lodestar.train.fit`
    (independently of its epochs) advance to the next one. Each file is given out
    once per epoch. A late iterator, e.g. of a restarted worker, gets no files from
    finished epochs and skips them immediately. Threads that share an epoch need a
    separate dataset each.

    **Lost files.** If an iterator ends early, e.g. because its process is killed, the
    file that it reads and the files that it has requested ahead are lost for this
    epoch: one file, or two if a batch is prefetched. The next epoch includes them.

    Iterators cannot be saved. While the server is unavailable, they wait for it.
    """

    def __init__(self, address: str):
        """Creates the list without connecting to the server.

        Args:
            address: `FileListServer.address`.

        Raises:
            ValueError: The address is not `"host:port"`.
        """
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"`address` must be 'host:port', found {address!r}."
            )
        self._address = str(address)
        self._passes: tf.data.Dataset | None = None

    @property
    def address(self) -> str:
        """Address of the server."""
        return self._address

    def dataset(self) -> tf.data.Dataset:
        """Returns the paths for one iterator, `tf.string` scalars.

        May be called inside a `tf.function`, e.g. in the `dataset_fn` of a
        `ClusterCoordinator`.
        """
        service = tf.data.experimental.service
        paths = service.from_dataset_id(
            processing_mode=service.ShardingPolicy.OFF,
            service=f"grpc://{self._address}",
            dataset_id=FILES,
            element_spec=PATH_SPEC,
            job_name=FILES,
            max_outstanding_requests=1,
        )
        # Paths that are requested ahead are not available to other iterators.
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return paths.with_options(options)

    def paths(self) -> Iterator[str]:
        """Yields the caller's paths of one epoch.

        The n-th call takes part in the n-th epoch. Threads that share an epoch need a
        separate object each.

        Raises:
            tf.errors.OpError: The server no longer has the list.
        """
        if self._passes is None:
            self._passes = self.dataset()
        for path in self._passes:
            yield os.fsdecode(path.numpy())

    def __repr__(self) -> str:
        return f"SharedFileList({self._address!r})"
