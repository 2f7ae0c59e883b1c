"""Finds and loads the shared object with the custom ops."""

import mmap
import os
import pathlib
import struct
import types

from lodestar._startup import quiet_tools

_BACKEND = (
    "lodestar: Keras runs on the backend '{}', wanted 'tensorflow'. Set "
    "KERAS_BACKEND=tensorflow in the environment before Keras is imported"
)


def check_backend(backend: str) -> None:
    """Raises ImportError unless Keras's backend is TensorFlow."""
    if backend != "tensorflow":
        raise ImportError(_BACKEND.format(backend) + ".")


# The first import of TensorFlow and Keras in a process of ours.
with quiet_tools():
    try:
        import keras
    except ImportError as error:
        # Of a backend that is not there either.
        wanted = os.environ.get("KERAS_BACKEND", "tensorflow")
        if wanted == "tensorflow":
            raise
        raise ImportError(f"{_BACKEND.format(wanted)} ({error}).") from error
    check_backend(keras.config.backend())
    import tensorflow as tf

_NAME = "_lodestar_ops.so"
_MARKER = b"LODESTAR_BUILT_FOR_TENSORFLOW="
_BUILD = f".venv/bin/bazel build //tf_ops:{_NAME}"


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
        f"lodestar: {_NAME} is not built. Build it with `{_BUILD}` in the "
        "checkout; looked for: " + ", ".join(map(str, candidates))
    )


def built_for(path: pathlib.Path) -> str:
    """Returns the TensorFlow version that the object was built for."""
    with open(path, "rb") as file:
        # An empty file cannot be mapped.
        if os.fstat(file.fileno()).st_size:
            with mmap.mmap(
                file.fileno(), 0, access=mmap.ACCESS_READ
            ) as content:
                begin = content.find(_MARKER)
                end = content.find(b"\0", begin)
                if 0 <= begin < end and _is_whole(content):
                    return content[begin + len(_MARKER) : end].decode()
    raise ImportError(
        f"lodestar: {path} is not Lodestar's library, or not all of it. Build "
        f"it again with `{_BUILD}`."
    )


def _is_whole(elf: bytes | mmap.mmap) -> bool:
    """Whether a file that begins as a 64-bit ELF has its last table, too.

    The loader takes one that was cut, and the process dies of a bus error.
    """
    if elf[:5] != b"\x7fELF\x02":
        return True  # the loader says what it is instead
    offset = struct.unpack_from("@Q", elf, 40)[0]
    size, count = struct.unpack_from("@HH", elf, 58)
    return offset + size * count <= len(elf)


def check_version(built: str, installed: str) -> None:
    """Raises ImportError unless major and minor number agree."""
    if built.split(".")[:2] != installed.split(".")[:2]:
        raise ImportError(
            f"lodestar: {_NAME} was built for TensorFlow {built}, but "
            f"TensorFlow {installed} is installed. Rebuild it with "
            f"`./configure.sh --tensorflow-version {installed} && {_BUILD}`, "
            f"or install TensorFlow {built}."
        )


def load(path: pathlib.Path) -> types.ModuleType:
    """Loads the object; returns the module of its generated op wrappers.

    Raises:
        ImportError: It was built for another TensorFlow, or cannot be loaded.
    """
    check_version(built_for(path), tf.__version__)
    try:
        return tf.load_op_library(str(path))
    except tf.errors.OpError as error:
        raise ImportError(
            f"lodestar: {path} cannot be loaded: {error.message}. Build it "
            f"again with `{_BUILD}`."
        ) from error


path = _find()

# Every other module takes the op wrappers from here.
gen_ops = load(path)
