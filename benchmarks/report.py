"""Runs benchmark programs, stores their output, and draws plots.

    python -m benchmarks.report run NAME... [--small]
    python -m benchmarks.report run --all [--tfra-python P] [--torch-python P]
    python -m benchmarks.report draw

`run` writes docs/benchmarks/lines/NAME.json: the lines of the program, with the
machine, versions, commit and load. `draw` makes the plots, the tables of
docs/results.md and docs/benchmarks/figures.md from these files.
`bazel build //benchmarks/...` builds the C++ programs.
"""

import argparse
import contextlib
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(
    os.environ.get(
        "BUILD_WORKSPACE_DIRECTORY", Path(__file__).absolute().parents[1]
    )
)
FOLDER = ROOT / "docs" / "benchmarks"
# Folder in FOLDER for the output of programs.
_LINES = "lines"
_LIMIT = 4500  # seconds; no program takes a fifth of it


class ReportError(RuntimeError):
    """A program failed, or a file is invalid."""


# Options that name interpreters with other libraries.
PEERS = {
    "--tfra-python": "TensorFlow Recommenders Addons",
    "--torch-python": "PyTorch and FBGEMM",
}


@dataclasses.dataclass(frozen=True)
class Program:
    """How a benchmark program is run.

    Attributes:
        arguments: Its arguments.
        small: Its arguments for small sizes.
        native: Whether it is a C++ program, built by Bazel.
        peers: Whether it takes the options of PEERS.
    """

    arguments: tuple[str, ...] = ()
    small: tuple[str, ...] = ("--small",)
    native: bool = False
    peers: bool = False

    def command(
        self, name: str, small: bool, pythons: Mapping[str, str | None]
    ) -> list[str]:
        """Returns the command line."""
        start = [sys.executable, "-m", f"benchmarks.{name}"]
        if self.native:
            start = [str(ROOT / "bazel-bin" / "benchmarks" / name)]
        given = pythons.items() if self.peers else ()
        return [
            *start,
            *(self.small if small else self.arguments),
            *(f"{option}={python}" for option, python in given if python),
        ]


PROGRAMS = {
    "arrow_benchmark": Program(),
    "callers_benchmark": Program(small=(), native=True),
    "embedding_benchmark": Program(("--runs", "7")),
    "embedding_store_benchmark": Program(native=True),
    "eviction_benchmark": Program(native=True),
    "growth_benchmark": Program(small=("200000",), native=True),
    "hogwild_benchmark": Program(("--runs", "7")),
    "id_table_benchmark": Program(),
    "live_model_benchmark": Program(),
    "model_benchmark": Program(),
    "peers_benchmark": Program(peers=True),
    "reader_benchmark": Program(),
    "results": Program(peers=True),
    "sequence_benchmark": Program(),
    "server_benchmark": Program(),
    "snapshot_benchmark": Program(),
    "training_benchmark": Program(),
}


def machine() -> dict[str, Any]:
    """Returns the processor, threads, memory and kernel of this machine.

    Virtual machines do not show which hardware threads share a core.
    """
    found = re.search(
        r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": found[1] if found else platform.machine(),
        "threads": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 2**30, 1),
        "kernel": platform.release(),
    }


def _package_version(*names: str) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"


def _compiler() -> str:
    """Returns the compiler that the library names."""
    library = ROOT / "bazel-bin" / "tf_ops" / "_lodestar_ops.so"
    if not library.exists():
        return "none"
    found = re.search(
        rb"(GCC: |clang version )[\x20-\x7e]+", library.read_bytes()
    )
    return found[0].decode() if found else "unknown"


def versions() -> dict[str, str]:
    """Returns the versions of packages, Python and compiler by name."""
    ours = importlib.util.find_spec("lodestar")  # which imports nothing
    folder = Path(ours.origin).parent if ours and ours.origin else ROOT
    path = folder / "version.py"
    text = path.read_text() if path.exists() else ""
    found = re.search(r'__version__ = "(.*)"', text)
    return {
        "lodestar": found[1] if found else "unknown",
        "tensorflow": _package_version("tensorflow-cpu", "tensorflow"),
        "keras": _package_version("keras"),
        "numpy": _package_version("numpy"),
        "python": platform.python_version(),
        "compiler": _compiler(),
    }


def commit() -> str:
    """Returns the commit, with + if the sources differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True
        )
        return done.stdout.strip()

    sources = ("python", "tf_ops", "benchmarks")
    changed = git("status", "--porcelain", "--", *sources)
    head = git("rev-parse", "--short=10", "HEAD")
    return (head or "unknown") + ("+" if changed else "")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def _output(name: str, command: list[str], limit: float) -> str:
    """Runs a program; returns its standard output."""
    path = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    # Files, not pipes, which processes that it started may keep open.
    with (
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, path)),
                },
                stdout=output,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ReportError(
                f"{name}: {command[0]} does not exist. Build it: "
                f".venv/bin/bazel build //benchmarks:{name}"
            ) from error
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired as error:
            raise ReportError(
                f"{name} took longer than {limit:.0f} seconds."
            ) from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and its children
            process.wait()
        output.seek(0)
        errors.seek(0)
        printed, said = output.read(), errors.read()
    if process.returncode:
        raise ReportError(
            f"{name} failed with status {process.returncode}: "
            f"{_last_line(said or printed)}"
        )
    return printed


def lines_of(name: str, printed: str) -> list[dict[str, Any]]:
    """Parses the JSON lines of a program's output.

    Args:
        name: Name of the program.
        printed: Its output; lines that do not begin with "{" are skipped.

    Raises:
        ReportError: A line is not valid JSON, or there is no JSON line.
    """
    lines = []
    for number, line in enumerate(printed.splitlines(), 1):
        if not line.startswith("{"):
            continue
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise ReportError(
                f"{name}: line {number} of the output is not JSON: "
                f"{line[:80]!r}"
            ) from error
    if not lines:
        raise ReportError(f"{name} printed no JSON line.")
    return lines


def run(
    name: str,
    program: Program,
    folder: Path = FOLDER,
    *,
    small: bool = False,
    pythons: Mapping[str, str | None] | None = None,
    limit: float = _LIMIT,
) -> dict[str, Any]:
    """Runs one program and writes its file.

    Args:
        name: Name of the program; the file is lines/NAME.json.
        program: How to run it.
        folder: Folder of the file; created if it does not exist.
        small: Whether to use small sizes, to check the program.
        pythons: The interpreter of each option in PEERS.
        limit: Time limit in seconds.

    Returns:
        The content of the file.

    Raises:
        ReportError: The program does not exist, failed, took too long or
            printed no JSON. An existing file is kept.
    """
    load = [round(value, 2) for value in os.getloadavg()]
    begin = time.monotonic()
    printed = _output(name, program.command(name, small, pythons or {}), limit)
    record = {
        "program": name,
        "arguments": list(program.small if small else program.arguments),
        "small": small,
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "load_before": load,
        "seconds": round(time.monotonic() - begin, 1),
        "lines": lines_of(name, printed),
    }
    path = folder / _LINES / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(record))
    return record


def _text(record: Mapping[str, Any]) -> str:
    """Formats JSON with one line per field and per line of the program."""
    fields = [
        f" {json.dumps(name)}: {json.dumps(value)}"
        for name, value in record.items()
        if name != "lines"
    ]
    lines = ",\n".join(f"  {json.dumps(line)}" for line in record["lines"])
    return "{\n" + ",\n".join(fields) + f',\n "lines": [\n{lines}\n ]\n}}\n'


def load(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Returns {program: content of its file}, sorted by name."""
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted((folder / _LINES).glob("*.json"))
    }


def draw(folder: Path) -> None:
    """Writes the plots and tables of all files."""
    # Only drawing needs matplotlib.
    from benchmarks import report_plots, report_tables

    records = load(folder)
    report_tables.write(records, folder)
    for path in report_plots.write(records, folder):
        print(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="default: %(default)s"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run programs and store their lines")
    runs.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(PROGRAMS)}"
    )
    runs.add_argument("--all", action="store_true", help="every program")
    runs.add_argument("--small", action="store_true", help="small sizes")
    for option, library in PEERS.items():
        runs.add_argument(option, help=f"an interpreter with {library}")
    commands.add_parser("draw", help="draw plots and write tables")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "draw":
        draw(options.folder)
        return 0
    for name in options.names:
        if name not in PROGRAMS:
            parser.error(f"unknown program {name!r}")
    if bool(options.names) == options.all:
        parser.error("name programs, or use --all")
    if (load_now := os.getloadavg()[0]) > 1:
        print(
            f"The load is {load_now:.1f}; figures of a busy machine are not "
            "reliable.",
            file=sys.stderr,
        )
    pythons = {
        option: getattr(options, option[2:].replace("-", "_"))
        for option in PEERS
    }
    code = 0
    for name in PROGRAMS if options.all else options.names:
        print(f"{name} ...", end=" ", flush=True)
        try:
            record = run(
                *(name, PROGRAMS[name], options.folder),
                small=options.small,
                pythons=pythons,
            )
        except ReportError as error:
            code = 1
            print(f"failed: {error}", flush=True)
        else:
            count = len(record["lines"])
            print(f"{count} lines, {record['seconds']} s", flush=True)
    return code


if __name__ == "__main__":
    # Exits normally, so that the running program is killed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
