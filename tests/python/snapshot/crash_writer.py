"""Trains and saves until it is killed, and logs the saved states.

A line on stdin starts a writer in its own process, whose id is printed.
Forking saves each of them TensorFlow's start. A writer appends to a log:

    begun CHECKSUM        a snapshot of this state begins
    committed CHECKSUM    the snapshot is complete
    failed TEXT
"""

import hashlib
import os
import random
import sys

import lodestar

# isort: split
import numpy as np
import tensorflow as tf

NAMES = ("a", "b")
DIM = 8


def make_tables():
    return [
        lodestar.EmbeddingVariable(
            DIM, embeddings_initializer="zeros", name=name
        )
        for name in NAMES
    ]


def checksum(tables):
    """Returns a checksum of all content of the tables."""
    digest = hashlib.sha1()
    for table in tables:
        for tensor in table._export_all().values():
            digest.update(
                tensor.numpy().tobytes()
                if tensor.dtype != tf.string
                else repr(np.array(tensor.numpy()).tolist()).encode()
            )
    return digest.hexdigest()


class Trainer:
    """Makes changes of every kind."""

    def __init__(self, tables, seed):
        self.tables = tables
        self._random = np.random.default_rng(seed)
        self._optimizer = lodestar.optimizers.Adagrad(0.1)

    def step(self):
        rows = int(self._random.choice([10, 300, 4000]))
        ids = tf.constant(self._random.integers(0, 20_000, rows))
        with tf.GradientTape() as tape:
            loss = sum(
                tf.reduce_sum((t.lookup(ids, training=True) - 1.0) ** 2)
                for t in self.tables
            )
        hooks = [t for t in self.tables]
        self._optimizer.apply(tape.gradient(loss, hooks), hooks)
        for t in self.tables:
            t.remove(self._random.integers(0, 20_000, rows // 4))


def write(path, log, seed):
    """Returns only by an error."""
    chance = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(text):
        os.write(out, f"{text}\n".encode())

    tables = make_tables()
    trainer = Trainer(tables, seed)
    if lodestar.snapshot.versions(path):
        lodestar.snapshot.restore(tables, path)
    while True:
        for _ in range(chance.randint(1, 3)):
            trainer.step()
        state = checksum(tables)
        say(f"begun {state}")
        delta = chance.random() < 0.8
        if chance.random() < 0.5:
            lodestar.snapshot.save(tables, path, delta)
        else:
            pending = lodestar.snapshot.save(
                tables, path, delta, blocking=False
            )
            while not pending.done():
                trainer.step()
            pending.wait()
        say(f"committed {state}")
        if chance.random() < 0.15:
            lodestar.snapshot.compact(path, keep=chance.randint(1, 3))


def main(path, log):
    children = []
    for line in sys.stdin:
        for child in children:
            os.waitpid(child, 0)
        seed = int(line)
        child = os.fork()
        if child == 0:
            try:
                write(path, log, seed)
            except BaseException as error:
                with open(log, "a") as file:
                    file.write(f"failed {type(error).__name__}: {error}\n")
            finally:
                os._exit(1)
        children = [child]
        print(child, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
