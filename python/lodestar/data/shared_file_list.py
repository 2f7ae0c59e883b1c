"""SharedFileList: files that iterators, of any processes, share out as they read.

TensorFlow's tf.data service has the list: one of its workers, in the process that
serves, gives each element to whichever iterator asks first.
"""

import os
from collections.abc import Iterator

import tensorflow as tf

# What a server calls its list, and the job in which iterators share it.
FILES = "files"
PATH_SPEC = tf.TensorSpec([], tf.string)


class SharedFileList:
    """The files of a `FileListServer`, each for the iterator that asks first.

    A reader takes it in the place of files: `MultiSlotDataset`, `NormDataset` and
    `RawDataset` have one file read by one of all the iterators, in whatever
    process or thread. A slow one reads fewer files. No batch holds samples of two
    files.

    >>> files = SharedFileList(server.address)
    >>> model.fit(lodestar.paddle.MultiSlotDataset(files, "schema.yaml", 1024))
    >>> for path in files.paths():
    ...     memory.load(path)  # an InMemoryDataset

    **Passes.** The first time that a dataset is iterated over it takes part in
    pass 0 over the files, then in pass 1, and so on: `repeat` and each epoch of
    `model.fit` go to the next one, and workers of `lodestar.train.fit` go from
    pass to pass, whatever its epochs are. In a pass every file is given out once.
    A pass that is over gives none: who comes late, as a worker that was started
    again, goes through those that are over at once. Threads that share a pass
    have a dataset each.

    **What is lost.** An iterator that ends early, as that of a process which is
    killed, takes with it, for this pass, the file that it reads and those that it
    has asked for ahead: one, and another one where a batch is prefetched. The
    next pass has them again.

    An iterator cannot be saved. While the server is away iterators wait for it.
    """

    def __init__(self, address: str):
        """Connects to nothing yet.

        Args:
            address: `FileListServer.address`.

        Raises:
            ValueError: It is no `"host:port"`.
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
        """Where the server is."""
        return self._address

    def dataset(self) -> tf.data.Dataset:
        """The paths that an iterator gets, `tf.string` scalars.

        Inside a `tf.function` too, as in the `dataset_fn` of a
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
        # What is asked for ahead is not there for others.
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return paths.with_options(options)

    def paths(self) -> Iterator[str]:
        """Yields the paths that the caller gets of a pass.

        The first call takes part in pass 0, the next one in pass 1, ...: of
        threads that share a pass each needs an object of its own.

        Raises:
            tf.errors.OpError: The server has no such list any more.
        """
        if self._passes is None:
            self._passes = self.dataset()
        for path in self._passes:
            yield os.fsdecode(path.numpy())

    def __repr__(self) -> str:
        return f"SharedFileList({self._address!r})"
