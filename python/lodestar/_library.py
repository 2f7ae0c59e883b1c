"""Finds and loads the shared object with the custom ops."""

import mmap
import os
import pathlib

import tensorflow as tf

_NAME = "_lodestar_ops.so"
_MARKER = b"LODESTAR_BUILT_FOR_TENSORFLOW="


def _find() -> pathlib.Path:
    # Not resolved: under Bazel the files beside this one are links, and the
    # object is beside the links.
    package = pathlib.Path(os.path.abspath(__file__)).parent
    roots = [package.parents[1], pathlib.Path(__file__).resolve().parents[2]]
    candidates = [package / _NAME]  # an installed wheel
    for root in roots:
        candidates.append(root / "tf_ops" / _NAME)  # Bazel's runfiles
        candidates.append(root / "bazel-bin" / "tf_ops" / _NAME)  # a checkout
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise ImportError(
        f"lodestar: {_NAME} is not built. Build it with "
        "`.venv/bin/bazel build //tf_ops:_lodestar_ops.so` in the checkout; "
        "looked for: " + ", ".join(map(str, candidates))
    )


def built_for(path: pathlib.Path) -> str:
    """Returns the TensorFlow version that the object was built for."""
    with open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            begin = content.find(_MARKER)
            if begin < 0:
                raise ImportError(f"lodestar: {path} is not Lodestar's library")
            begin += len(_MARKER)
            return content[begin : content.find(b"\0", begin)].decode()


def check_version(built: str, installed: str) -> None:
    """Raises ImportError unless major and minor number agree."""
    if built.split(".")[:2] != installed.split(".")[:2]:
        raise ImportError(
            f"lodestar: {_NAME} was built for TensorFlow {built}, but "
            f"TensorFlow {installed} is installed. Rebuild it with "
            f"`./configure.sh --tensorflow-version {installed} && "
            f".venv/bin/bazel build //tf_ops:{_NAME}`, or install TensorFlow "
            f"{built}."
        )


_path = _find()
check_version(built_for(_path), tf.__version__)

# The module of generated op wrappers; every other module takes it from here.
gen_ops = tf.load_op_library(str(_path))
