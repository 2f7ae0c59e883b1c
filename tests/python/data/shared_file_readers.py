"""Programs that run in the processes of shared_file_list_test.py."""

import os
import threading
import time

import lodestar

# isort: split
import tensorflow as tf

from lodestar.data import FileListServer, SharedFileList, open_dataset


def read(address, schema, stay=False):
    """Prints the numbers of two epochs, or stays in the first file."""
    dataset = open_dataset(
        SharedFileList(address), schema, 5, format="multislot", repeat=2
    )
    for _, y in dataset:
        print(*[int(n) for n in y[:, 0].numpy()], flush=True)
        if stay:
            threading.Event().wait()


def coordinate(schema, files, count):
    """Prints the `count` numbers that a cluster's workers read."""
    cluster = lodestar.testing.LocalCluster(ps=1, workers=2)
    strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    server = FileListServer(files)

    def dataset():
        shared = SharedFileList(server.address)
        dataset = open_dataset(shared, schema, 10, format="multislot")
        return dataset.map(lambda x, y: y[:, 0])

    @tf.function
    def step(iterator):
        batch = iterator.get_next_as_optional()
        return tf.cond(
            batch.has_value(), batch.get_value, lambda: tf.zeros([0])
        )

    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    def steps():
        results = [coordinator.schedule(step, (iterator,)) for _ in range(20)]
        coordinator.join()
        return [int(n) for result in results for n in result.fetch()]

    # One worker may get all steps while the other has files to read.
    found = []
    deadline = time.monotonic() + 240
    while len(found) < count and time.monotonic() < deadline:
        found += steps()
    found += steps()
    print(*sorted(found), flush=True)
    os._exit(0)  # the cluster ends with the process
