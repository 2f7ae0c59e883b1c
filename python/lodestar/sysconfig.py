"""Flags to compile custom ops that read tables.

They complement the flags of `tf.sysconfig`:

>>> compile_flags = tf.sysconfig.get_compile_flags() + get_compile_flags()
>>> link_flags = tf.sysconfig.get_link_flags() + get_link_flags()
"""

import os
import pathlib

from lodestar import _library

__all__ = ["get_compile_flags", "get_link_flags"]
__dir__ = __all__.copy
_HEADER = "tf_ops/kernels/embedding/op_table.h"


def get_compile_flags() -> list[str]:
    """Returns the flags to compile with the headers of this version.

    Raises:
        FileNotFoundError: The headers are not installed.
    """
    package = pathlib.Path(os.path.abspath(__file__)).parent
    folders = [
        package / "include",  # of a wheel
        package.parents[1],  # Bazel's runfiles, or a checkout
        pathlib.Path(__file__).resolve().parents[2],
    ]
    for folder in folders:
        if (folder / _HEADER).exists():
            return [f"-I{folder}"]
    raise FileNotFoundError(
        f"{_HEADER} is not installed. Searched: {', '.join(map(str, folders))}."
    )


def get_link_flags() -> list[str]:
    """Returns the flags to link with the library that this process has loaded."""
    return [f"-L{_library.path.parent}", f"-l:{_library.path.name}"]
