"""The Python functions of a library's ops, compiled on first use.

TensorFlow generates their source, 900 KB for our ops. Compiling all of it takes 0.3 s,
which every import would spend on ops that it never calls.
"""

import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

# In the generated source: calls that raise the error of an eager op.
_RAISING = ("_ops.raise_from_not_ok_status(", "_execute.execute(")

# The beginning of an op's source, with its types, if any.
_BEGIN = re.compile(
    r"^(?=@_dispatch\.add_fallback_dispatch_list$|_\w+Output = |TV_\w+ = )",
    re.MULTILINE,
)
_NAME = re.compile(r"^(?:def (\w+)\(|(\w+) = )", re.MULTILINE)


class OpWrappers(types.ModuleType):
    """A module of the functions in generated source.

    Args:
        name: Name of the module.
        source: Imports, followed by the functions of one op after another.
        call: Calls a function that may raise the error of an eager op.
    """

    def __init__(self, name: str, source: str, call: Callable[..., Any]):
        super().__init__(name)
        for raising in _RAISING:
            source = source.replace(raising, f"_call({raising[:-1]}, ")
        header, *pieces = _BEGIN.split(source)
        vars(self)["_call"] = call
        self._lock = threading.Lock()
        self._sources: dict[str, str] = {}
        before = ""
        for piece in pieces:
            before += piece
            if "\ndef " in piece:
                for names in _NAME.findall(before):
                    self._sources["".join(names)] = before
                before = ""
        # Unrecognized source is compiled now.
        exec(header + before, vars(self))
        # AutoGraph does not convert functions of such a module.
        self._IS_TENSORFLOW_PLUGIN = True
        self._header = {**vars(self)}
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        source = vars(self).get("_sources", {}).get(name)
        if source is None:
            raise AttributeError(
                f"module '{self.__name__}' has no attribute '{name}'"
            )
        with self._lock:
            if name not in vars(self):
                # Other threads see a function only with the names that it uses.
                scope = {**self._header}
                exec(source, scope)
                vars(self).update(scope)
        return vars(self)[name]

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self._sources})
