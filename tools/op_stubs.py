"""Prints the types of the library's ops: `op_stubs.py LIBRARY`.

TensorFlow generates their Python code when it loads the library, so type
checkers cannot see it. The build writes bazel-bin/tools/_gen_ops.pyi, to which
python/lodestar/_gen_ops.pyi is a link.
"""

import inspect
import re
import sys
import types

_HEAD = '''"""What TensorFlow generates of the library's ops; see tools/op_stubs.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
'''
# From the generated description of an argument or a result to its type.
_KINDS = {
    r"`Tensor`": "tf.Tensor",
    r"list .*`Tensor` objects.*": "Sequence[tf.Tensor]",
    r"list of `ints`.*": "Sequence[int]",
    r"list of `floats`.*": "Sequence[float]",
    r"list of `bools`.*": "Sequence[bool]",
    r"list of `strings`.*": "Sequence[str] | Sequence[bytes]",
    r"list of `tf.DTypes`.*": "Sequence[tf.DType]",
    r"list of shapes .*": "Sequence[Any]",
    r"`int`": "int",
    r"`float`": "float",
    r"`bool`": "bool",
    r"`string`": "str",
    r"`tf.DType`": "tf.DType",
}


def _kind(op: str, text: str) -> str:
    """Returns the type of an argument or a result from its docstring."""
    found = re.match(r"An? (?:optional )?(`[\w.]+`|list .*)", text)
    for pattern, kind in _KINDS.items():
        if found and re.fullmatch(pattern, found[1]):
            return kind
    raise ValueError(f"{op}: {text!r} has an unknown kind.")


def _described(text: str) -> dict[str, str]:
    """Returns {name: first line of its description} of a section."""
    return dict(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE))


def _result(op: str, text: str) -> tuple[str, str]:
    """Returns the type of an op's result, and the class to define for it."""
    first = text.strip().split("\n")[0]
    if first == "The created Operation.":
        return "tf.Operation | None", ""
    names = re.fullmatch(r"A tuple of `Tensor` objects \((.*)\)\.", first)
    if names is None:
        return _as_result(_kind(op, first)), ""
    said = _described(text)
    made = f"_{op.removeprefix('lodestar_').title().replace('_', '')}"
    fields = ""
    for name in names[1].split(", "):
        fields += f"    {name}: {_as_result(_kind(op, said[name]))}\n"
    return made, f"\n\nclass {made}(NamedTuple):\n{fields}"


def _as_result(kind: str) -> str:
    return kind.replace("Sequence", "list")


def stub(gen_ops: types.ModuleType) -> str:
    """Returns the formatted stub of a module of generated ops.

    Raises:
        ValueError: TensorFlow describes an argument in an unknown way.
    """
    text = _HEAD
    for op in dir(gen_ops):
        function = getattr(gen_ops, op)
        if not op.startswith("lodestar_") or op.endswith("_eager_fallback"):
            continue
        arguments, _, result = function.__doc__.rpartition("\n  Returns:\n")
        said = _described(arguments.rpartition("\n  Args:\n")[2])
        kind_of_result, its_class = _result(op, result)
        text += f"{its_class}\n\ndef {op}(\n"
        for name, parameter in inspect.signature(function).parameters.items():
            default = parameter.default
            shown = "" if default is parameter.empty else f" = {default!r}"
            kind = "str | None" if name == "name" else _kind(op, said[name])
            text += f"    {name}: {kind}{shown},\n"
        text += f") -> {kind_of_result}: ...\n"
    return text


if __name__ == "__main__":
    import tensorflow as tf

    sys.stdout.write(stub(tf.load_op_library(sys.argv[1])))
