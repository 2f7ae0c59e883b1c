"""Writes the wheel: `bazel run //:wheel [-- --with PATH... --output DIR]`."""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable

from auditwheel.architecture import Architecture
from auditwheel.elfutils import elf_find_versioned_symbols
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

# Not resolved, because under Bazel the wheel's files are next to the link.
ROOT = pathlib.Path(os.path.abspath(__file__)).parents[1]
MOST_BYTES = 20_000_000
_NAME = "_lodestar_ops.so"
_STUB = "_gen_ops.pyi"
_MARKER = re.compile(rb"LODESTAR_BUILT_FOR_TENSORFLOW=(\d+\.\d+)[^\0]*\0")
# In pyproject.toml, for all releases that a wheel may support.
_EXTRA = re.compile(r'"(tensorflow(?:-cpu)?)>=[^"]*"')
# The header for custom ops; python/lodestar/sysconfig.py finds it.
_HEADER = "tf_ops/kernels/embedding/op_table.h"
_INCLUDE = re.compile(r'^#include "(tf_ops/[^"]+)"', re.MULTILINE)
_METADATA = ("LICENSE", "NOTICE", "README.md", "pyproject.toml", "setup.py")
# TensorFlow's package contains the first and loads it before Lodestar; every
# program needs glibc's loader.
_ALWAYS_THERE = ("libtensorflow_framework.so.2", "ld-linux-x86-64.so.2")
# The first day that a zip file can represent.
_EPOCH = "315532800"


class WheelError(Exception):
    """The wheel cannot be built; the message names the file and the reason."""


def own_library() -> pathlib.Path:
    """Returns the library that was built in this checkout."""
    for folder in ("tf_ops", "bazel-bin/tf_ops"):
        path = ROOT / folder / _NAME
        if path.exists():
            return path
    raise WheelError(
        f"{_NAME} is not built. Run `.venv/bin/bazel build //tf_ops:{_NAME}`"
    )


def by_release(paths: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Returns {minor release of TensorFlow, such as "2.21": its library}.

    Raises:
        WheelError: A file is not Lodestar's library, or two are for one
            release.
    """
    found: dict[str, pathlib.Path] = {}
    for path in paths:
        try:
            marker = _MARKER.search(path.read_bytes())
        except OSError as error:
            raise WheelError(f"{path}: {error.strerror}") from error
        if marker is None:
            raise WheelError(f"{path} is not Lodestar's library.")
        release = marker[1].decode()
        if release in found:
            raise WheelError(
                f"{path} and {found[release]} are both for TensorFlow {release}."
            )
        found[release] = path
    return found


def policy_of(paths: list[pathlib.Path]) -> Policy:
    """Returns the oldest platform that has everything the libraries need.

    Its name is the wheel's tag, such as "manylinux_2_35_x86_64"; it defines
    versions of glibc and of libstdc++.

    Raises:
        WheelError: No platform includes a symbol that a library needs.
    """
    needed: dict[str, set[str]] = collections.defaultdict(set)
    libraries: dict[str, pathlib.Path] = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                elf = ELFFile(file)
                for name, version in elf_find_versioned_symbols(elf):
                    needed[name].add(version)
                for section in elf.iter_sections():
                    if isinstance(section, DynamicSection):
                        for tag in section.iter_tags("DT_NEEDED"):
                            libraries[tag.needed] = path
        except ELFError as error:
            raise WheelError(
                f"{path} is not a complete library: {error}"
            ) from error
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    policy = policies.versioned_symbols_policy(needed)
    if policy == policies.linux:
        raise WheelError(
            "no platform's tag allows the symbols of "
            f"{', '.join(map(str, paths))}: {dict(needed)}"
        )
    for name, path in libraries.items():
        if name not in policy.whitelist and name not in _ALWAYS_THERE:
            raise WheelError(
                f"{path} needs {name}, which {policy.name} does not include."
            )
    return policy


def _run(command: list[str], **options: object) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, **options
        )
    except FileNotFoundError as error:
        raise WheelError(f"{command[0]} is not installed.") from error
    if done.returncode:
        raise WheelError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    # The wheel stores a file's mode.
    target.chmod(0o644)


def installed_headers() -> set[str]:
    """Returns the header for custom ops, and all that it includes."""
    found: set[str] = set()
    new = {_HEADER}
    while new:
        found |= new
        texts = [(ROOT / header).read_text() for header in new]
        new = {name for text in texts for name in _INCLUDE.findall(text)}
        new -= found
    return found


def offered(releases: Iterable[str]) -> str:
    """Returns the range for pip: ">=2.20,<2.22" for "2.20" and "2.21".

    Args:
        releases: Minor releases of TensorFlow 2. Missing releases between them
            are excluded by name, such as "!=2.20.*".
    """
    minors = {int(release.removeprefix("2.")) for release in releases}
    first, end = min(minors), max(minors) + 1
    missing = sorted(set(range(first, end)) - minors)
    return ",".join(
        [f">=2.{first}", f"<2.{end}", *(f"!=2.{each}.*" for each in missing)]
    )


def _stage(folder: pathlib.Path, libraries: dict[str, pathlib.Path]) -> None:
    """Copies the files of the wheel."""
    for name in _METADATA:
        _copy(ROOT / name, folder / name)
    project = folder / "pyproject.toml"
    text, count = _EXTRA.subn(rf'"\1{offered(libraries)}"', project.read_text())
    if count != 2:
        raise WheelError(f"{project.name} has no extras of TensorFlow.")
    project.write_text(text)
    package = ROOT / "python" / "lodestar"
    stub = ROOT / "tools" / _STUB
    if not stub.exists():  # without Bazel
        stub = ROOT / "bazel-bin" / "tools" / _STUB
    _copy(stub, folder / "python" / "lodestar" / _STUB)
    for suffix in ("*.py", "*.pyi", "*.csv.gz", "py.typed"):
        for path in package.rglob(suffix):
            if path.name != _STUB:  # a link, which Bazel leaves out
                _copy(path, folder / path.relative_to(ROOT))
    for header in installed_headers():
        _copy(
            ROOT / header, folder / "python" / "lodestar" / "include" / header
        )
    for release, path in libraries.items():
        ops = folder / "python" / "lodestar" / "_ops"
        target = ops / f"tf{release}" / _NAME
        _copy(path, target)
        _run(["strip", "--strip-unneeded", str(target)])


def build_wheel(
    paths: list[pathlib.Path], output: pathlib.Path, most: int = MOST_BYTES
) -> pathlib.Path:
    """Writes the wheel; the same libraries produce the same bytes.

    Args:
        paths: Libraries, each built for another minor release of TensorFlow.
        output: The output folder; created if it does not exist.
        most: Maximum size of the wheel in bytes.

    Returns:
        The path of the wheel.

    Raises:
        WheelError: A library is not Lodestar's or cannot be shipped, or the
            wheel would be too large.
    """
    libraries = by_release(paths)
    platform = policy_of(paths).name
    with tempfile.TemporaryDirectory() as folder:
        staged = pathlib.Path(folder, "staged")
        _stage(staged, libraries)
        made = pathlib.Path(folder, "made")
        made.mkdir()
        options = {"--build-option": ["--plat-name", platform]}
        backend = (
            "from setuptools import build_meta\n"
            f"build_meta.build_wheel({str(made)!r}, {options!r})"
        )
        _run(
            [sys.executable, "-c", backend],
            cwd=staged,
            umask=0o022,
            env={"SOURCE_DATE_EPOCH": _EPOCH, **os.environ},
        )
        (wheel,) = made.iterdir()
        size = wheel.stat().st_size
        if size > most:
            raise WheelError(
                f"{wheel.name} must have at most {most:,} bytes, got {size:,}, "
                f"with libraries for {', '.join(libraries)}."
            )
        output.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(wheel, output))


def main() -> None:
    """Builds the wheel with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--with",
        dest="others",
        nargs="+",
        type=pathlib.Path,
        default=[],
        metavar="PATH",
        help="libraries built for other minor releases of TensorFlow",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help="output folder (default: dist of the checkout; replaces an older wheel)",
    )
    options = parser.parse_args()
    # The user's working directory, not Bazel's.
    start = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()))
    checkout = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ROOT)
    output = start / (options.output or pathlib.Path(checkout, "dist"))
    paths = [own_library(), *(start / path for path in options.others)]
    try:
        wheel = build_wheel(paths, output)
    except WheelError as error:
        raise SystemExit(f"build_wheel: {error}") from None
    if options.output is None:
        for old in set(output.glob("tf_lodestar-*.whl")) - {wheel}:
            old.unlink()
    releases = ", ".join(by_release(paths))
    print(f"{wheel}: {wheel.stat().st_size:,} bytes, TensorFlow {releases}")


if __name__ == "__main__":
    main()
