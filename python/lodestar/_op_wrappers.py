"""The Python functions of a library's ops, each compiled when first used.

TensorFlow writes their source, 900 KB for our ops. To compile it all takes 0.3 s,
which every import would pay for ops that it never calls.
"""

import re
import sys
import threading
import types
from typing import Any

# Where the source of an op begins: with its types, if it has any.
_BEGIN = re.compile(
    r"^(?=@_dispatch\.add_fallback_dispatch_list$|_\w+Output = |TV_\w+ = )",
    re.MULTILINE,
)
_NAME = re.compile(r"^(?:def (\w+)\(|(\w+) = )", re.MULTILINE)


class OpWrappers(types.ModuleType):
    """A module of the functions in a source that TensorFlow has written.

    Args:
        name: Name of the module.
        source: Imports, followed by the functions of one op after another.
    """

    def __init__(self, name: str, source: str):
        super().__init__(name)
        header, *pieces = _BEGIN.split(source)
        self._lock = threading.Lock()
        self._sources: dict[str, str] = {}
        before = ""
        for piece in pieces:
            before += piece
            if "\ndef " in piece:
                for names in _NAME.findall(before):
                    self._sources["".join(names)] = before
                before = ""
        # What is not understood is compiled now.
        exec(header + before, vars(self))
        # AutoGraph converts no function of such a module.
        self._IS_TENSORFLOW_PLUGIN = True
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        source = vars(self).get("_sources", {}).get(name)
        if source is None:
            raise AttributeError(
                f"module '{self.__name__}' has no attribute '{name}'"
            )
        with self._lock:
            if name not in vars(self):
                exec(source, vars(self))
        return vars(self)[name]

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self._sources})
