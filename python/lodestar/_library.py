"""Finds and loads the shared object with the custom ops."""

import mmap
import os
import pathlib
import struct
import types
import warnings
from typing import TYPE_CHECKING

from lodestar._commands import begin
from lodestar._op_wrappers import OpWrappers
from lodestar._startup import quiet_tools

_BACKEND = (
    "lodestar: the Keras backend must be 'tensorflow', got '{}'. Set "
    "KERAS_BACKEND=tensorflow in the environment before Keras is imported"
)
_OLDEST_KERAS = (3, 15)
# Tested minor releases; see docs/internals/releases.md.
_TRIED = {"Keras": ("3.15",), "TensorFlow": ("2.18", "2.19", "2.20", "2.21")}
_WANTED = ".".join(map(str, _OLDEST_KERAS))
_KERAS = f"`pip install 'keras>={_WANTED}'`"
# Both packages have the same module, so neither is a dependency of ours.
_TENSORFLOW = (
    "`pip install 'tf-lodestar[tensorflow-cpu]'`, or 'tf-lodestar[tensorflow]' "
    "for GPUs"
)


def check_backend(backend: str) -> None:
    """Raises ImportError unless Keras's backend is TensorFlow."""
    if backend != "tensorflow":
        raise ImportError(_BACKEND.format(backend) + ".")


def check_keras(version: str) -> None:
    """Raises ImportError unless this release of Keras is supported."""
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_KERAS:
        raise ImportError(
            f"lodestar: Keras must be {_WANTED} or later, got {version}. "
            f"Install it with {_KERAS}."
        )


def warn_of_untried(keras_version: str, tensorflow_version: str) -> None:
    """Warns of an untested minor release of Keras or TensorFlow."""
    installed = {"Keras": keras_version, "TensorFlow": tensorflow_version}
    untried = [
        f"{name} {version}"
        for name, version in installed.items()
        if ".".join(version.split(".")[:2]) not in _TRIED[name]
    ]
    if untried:
        tried = " and ".join(
            f"{name} {', '.join(minors)}" for name, minors in _TRIED.items()
        )
        warnings.warn(
            f"lodestar: {' and '.join(untried)} is installed, but Lodestar is "
            f"only tested with {tried}.",
            stacklevel=4,
        )


def explain_missing(error: Exception) -> None:
    """Raises ImportError for an understood error of Keras's import."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if name == "keras":
        raise ImportError(
            f"lodestar: Keras is not installed. Install it with {_KERAS}."
        ) from error
    # Without the variable, Keras's settings select the backend.
    backend = os.environ.get("KERAS_BACKEND")
    if not backend:
        backend = name if name in ("jax", "torch", "openvino") else "tensorflow"
    if backend != "tensorflow":
        reason = " ".join(str(error).split())
        raise ImportError(f"{_BACKEND.format(backend)} ({reason}).") from error
    if name == "tensorflow":
        raise ImportError(
            "lodestar: TensorFlow is not installed. Install it with "
            f"{_TENSORFLOW}."
        ) from error


begin()
# Our first import of TensorFlow and Keras.
with quiet_tools():
    try:
        import keras
    except Exception as error:
        explain_missing(error)
        raise
    check_keras(keras.__version__)
    check_backend(keras.config.backend())
    import tensorflow as tf

    from lodestar import _errors, _private

warn_of_untried(keras.__version__, tf.__version__)

_NAME = "_lodestar_ops.so"
_MARKER = b"LODESTAR_BUILT_FOR_TENSORFLOW="
_BUILD = f".venv/bin/bazel build //tf_ops:{_NAME}"
_INSTALLED = "_ops"  # the folder of a wheel's libraries


def choose(folder: pathlib.Path, installed: str) -> pathlib.Path:
    """Returns the library of a wheel for a release of TensorFlow."""
    minor = ".".join(installed.split(".")[:2])
    path = folder / f"tf{minor}" / _NAME
    if path.exists():
        return path
    found = sorted(
        (
            each.parent.name.removeprefix("tf")
            for each in folder.glob(f"*/{_NAME}")
        ),
        key=lambda release: tuple(map(int, release.split("."))),
    )
    raise ImportError(
        f"lodestar: TensorFlow {installed} is installed, but this wheel has "
        f"libraries for {', '.join(found)}. Install one of these: `pip install "
        f"'tensorflow=={found[-1]}.*'`, or tensorflow-cpu if you use that."
    )


def _find() -> pathlib.Path:
    # Not resolved: under Bazel the files next to this one are links, and the
    # object is next to the links.
    package = pathlib.Path(os.path.abspath(__file__)).parent
    resolved = pathlib.Path(__file__).resolve().parents[2]
    roots = dict.fromkeys([package.parents[1], resolved])
    installed = package / _INSTALLED
    if any(installed.glob(f"*/{_NAME}")):
        return choose(installed, tf.__version__)
    candidates = []
    for root in roots:
        candidates.append(root / "tf_ops" / _NAME)  # Bazel's runfiles
        candidates.append(root / "bazel-bin" / "tf_ops" / _NAME)  # a checkout
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise ImportError(
        f"lodestar: {_NAME} is not built. Build it with `{_BUILD}` in the "
        "checkout. Searched: " + ", ".join(map(str, candidates))
    )


def _again(path: pathlib.Path) -> str:
    if _INSTALLED in path.parts:
        return (
            "Reinstall the wheel with `pip install --force-reinstall "
            "--no-deps`."
        )
    return f"Rebuild it with `{_BUILD}`."


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
        f"lodestar: {path} is not Lodestar's library, or is incomplete. "
        f"{_again(path)}"
    )


def _is_whole(elf: bytes | mmap.mmap) -> bool:
    """Whether a 64-bit ELF file is complete, with its last table.

    The loader accepts a truncated file, and the process dies of a bus error.
    """
    if elf[:5] != b"\x7fELF\x02":
        return True  # the loader reports the error
    offset = struct.unpack_from("@Q", elf, 40)[0]
    size, count = struct.unpack_from("@HH", elf, 58)
    return offset + size * count <= len(elf)


def check_version(built: str, installed: str) -> None:
    """Raises ImportError unless major and minor version agree."""
    if built.split(".")[:2] != installed.split(".")[:2]:
        raise ImportError(
            f"lodestar: {_NAME} was built for TensorFlow {built}, but "
            f"TensorFlow {installed} is installed. Rebuild it with "
            f"`./configure.sh --tensorflow-version {installed} && {_BUILD}`, "
            f"or install TensorFlow {built}."
        )


def load(path: pathlib.Path) -> types.ModuleType:
    """Loads the object; returns the module of its generated op wrappers."""
    check_version(built_for(path), tf.__version__)
    try:
        source = _private.source_of_ops(str(path))
        if source is None:
            return tf.load_op_library(str(path))
        return OpWrappers("lodestar._gen_ops", source, _errors.call_plainly)
    except tf.errors.OpError as error:
        raise ImportError(
            f"lodestar: {path} cannot be loaded: {error.message}. "
            f"{_again(path)}"
        ) from error


path = _find()

# Every other module imports the op wrappers from here.
if TYPE_CHECKING:
    import lodestar._gen_ops  # only types

    gen_ops = lodestar._gen_ops
else:
    gen_ops = load(path)
