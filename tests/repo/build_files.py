"""Reads the C++ targets of the BUILD files."""

import dataclasses
import pathlib
import re

import checkout

# Functions of BUILD files whose targets have sources in C++.
_KINDS = (
    "cc_binary",
    "cc_library",
    "lodestar_cc_test",
    "lodestar_core_library",
    "lodestar_cuda_library",
    "lodestar_cuda_test",
    "lodestar_guards_test",
    "lodestar_kernels_test",
    "lodestar_op_library",
)
# The last one builds another target's sources with emulated CUDA.
_OTHERS = (
    "exports_files",
    "filegroup",
    "load",
    "py_binary",
    "py_library",
    "lodestar_emulated_op_library",
    "lodestar_installed_headers",
)


@dataclasses.dataclass
class Target:
    """A target, with paths from the root of the repository."""

    label: str
    files: list[str]  # its own sources and headers
    headers: list[str]  # headers that other targets include
    deps: set[str]

    def included(self) -> set[str]:
        """Returns the headers it includes from other targets."""
        return {
            header
            for file in self.files
            for header in includes(checkout.ROOT / file)
            if header not in self.files
        }


def includes(path: pathlib.Path) -> list[str]:
    """Returns the project headers that a file includes."""
    return re.findall(
        r'^#include "((?:tf_ops|tests|benchmarks)/[\w./]+)"',
        path.read_text(),
        re.M,
    )


class _Package:
    """Runs a BUILD file as Python, of which its language is a subset."""

    def __init__(self, path: pathlib.Path):
        self._folder = path.parent
        self._name = checkout.label(path.parent)
        self.targets: list[Target] = []
        names = {kind: self._target for kind in _KINDS}
        names.update({name: lambda *args, **kwargs: None for name in _OTHERS})
        names["glob"] = self._glob
        exec(compile(path.read_text(), str(path), "exec"), names)

    def _glob(self, patterns):
        return sorted(
            str(path.relative_to(self._folder))
            for pattern in patterns
            for path in self._folder.glob(pattern)
        )

    def _target(self, name, srcs=None, hdrs=None, deps=(), **others):
        deps = {*deps, *filter(None, [others.get("kernels")])}
        own = [*(srcs or []), *(hdrs or []), *others.get("device_hdrs", [])]
        # Sources and headers that the macros of build_defs add.
        for suffix, given in (".cc", srcs), (".h", hdrs):
            if given is None or name.endswith("_test"):
                own += self._glob([name + suffix])
        own = [file for file in own if file[0] not in ":/"]
        headers = hdrs if hdrs is not None else self._glob([name + ".h"])
        self.targets.append(
            Target(
                self._label(":" + name),
                [f"{self._name}/{file}" for file in dict.fromkeys(own)],
                [f"{self._name}/{header}" for header in headers],
                {self._label(dep) for dep in deps if dep[0] != "@"},
            )
        )

    def _label(self, text):
        if text.startswith(":"):
            return f"//{self._name}{text}"
        return text if ":" in text else f"{text}:{text.rpartition('/')[2]}"


def targets(*folders: str) -> list[Target]:
    """Returns the targets of the BUILD files below the folders."""
    return [
        target
        for folder in folders
        for path in checkout.files("BUILD", under=folder)
        for target in _Package(path).targets
    ]
