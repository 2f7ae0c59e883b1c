"""Builds an op that reads rows of a table, and calls it eagerly and in a graph."""

import pathlib
import subprocess
import tempfile
from collections.abc import Callable

import tensorflow as tf

import lodestar

_SOURCE = pathlib.Path(__file__).parent / "score_ids.cc"


def build(library: pathlib.Path) -> None:
    """Compiles the op with g++."""
    flags = [
        *tf.sysconfig.get_compile_flags(),
        *lodestar.sysconfig.get_compile_flags(),
        # TensorFlow's headers use names that they deprecate.
        *("-O2", "-Wno-deprecated-declarations", "-fPIC", "-shared"),
        *(str(_SOURCE), "-o", str(library)),
        *tf.sysconfig.get_link_flags(),
        *lodestar.sysconfig.get_link_flags(),
    ]
    subprocess.run(["g++", *flags], check=True)


def load() -> Callable[..., tf.Tensor]:
    """Returns the function of the op."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder, "score_ids.so")
        build(library)
        return tf.load_op_library(str(library)).score_ids


def main() -> None:
    """Scores the rows of three users."""
    score_ids = load()
    users = lodestar.EmbeddingVariable(2, name="users")
    users.insert_or_assign([7, 8], [[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def scores(query: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return score_ids(users.resource_handle, query, ids)

    query, ids = tf.constant([1.0, 10.0]), tf.constant([8, 7, 9], tf.int64)
    print(score_ids(users.resource_handle, query, ids).numpy())
    print(scores(query, ids).numpy())


if __name__ == "__main__":
    main()
