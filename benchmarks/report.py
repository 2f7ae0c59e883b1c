"""Runs benchmark programs, stores their output, and draws plots.

    python -m benchmarks.report list
    python -m benchmarks.report run NAME... [--small]
    python -m benchmarks.report run --all [--budget SECONDS]
        [--tfra-python P] [--torch-python P]
    python -m benchmarks.report draw

`run` writes docs/benchmarks/lines/NAME.json: the lines of the program, with the
machine, versions, commit and load. `draw` makes the plots and
docs/benchmarks/figures.md from these files. `bazel build //benchmarks/...`
builds the C++ programs.
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
from collections.abc import Iterable, Mapping
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
        seconds: Approximate duration on two cores.
        arguments: Its arguments; "{folder}" becomes an empty folder.
        small: Its arguments for small sizes.
        native: Whether it is a C++ program, built by Bazel.
        peers: Whether it takes the options of PEERS.
    """

    seconds: int
    arguments: tuple[str, ...] = ()
    small: tuple[str, ...] = ("--small",)
    native: bool = False
    peers: bool = False

    def command(
        self, name: str, small: bool, pythons: Mapping[str, str | None]
    ) -> list[str]:
        """Returns the command line; "{folder}" is not yet replaced."""
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
    "arrow_benchmark": Program(180),
    "callers_benchmark": Program(60, small=(), native=True),
    "collection_benchmark": Program(60),
    "embedding_benchmark": Program(240, ("--runs", "7")),
    "embedding_snapshot_benchmark": Program(
        60, ("{folder}",), ("--small", "{folder}"), native=True
    ),
    "embedding_store_benchmark": Program(60, native=True),
    "eviction_benchmark": Program(60, native=True),
    "feeding_benchmark": Program(180, ("--small", "--runs", "15")),
    "growth_benchmark": Program(150, (), ("200000",), native=True),
    "hogwild_benchmark": Program(240, ("--runs", "7")),
    "id_table_benchmark": Program(300),
    "live_model_benchmark": Program(120),
    "model_benchmark": Program(150),
    "peers_benchmark": Program(150, peers=True),
    "reader_benchmark": Program(180),
    "results": Program(850, peers=True),
    "second_core_benchmark": Program(400),
    "sequence_benchmark": Program(240),
    "sequence_parts_benchmark": Program(180),
    "server_benchmark": Program(
        300, ("lookup", "step"), ("--small", "lookup", "step")
    ),
    "snapshot_benchmark": Program(240),
    "snapshot_load_benchmark": Program(
        30,
        ("{folder}/rows.snapshot", "1000000"),
        ("{folder}/rows.snapshot", "20000"),
        native=True,
    ),
    "training_benchmark": Program(120),
}


def machine() -> dict[str, Any]:
    """Returns the processor, cores, memory and kernel of this machine."""
    found = re.search(
        r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": found[1] if found else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
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
    limit: float | None = None,
) -> dict[str, Any]:
    """Runs one program and writes its file.

    Args:
        name: Name of the program; the file is lines/NAME.json.
        program: How to run it.
        folder: Folder of the file; created if it does not exist.
        small: Whether to use small sizes, to check the program.
        pythons: The interpreter of each option in PEERS.
        limit: Time limit in seconds; by default five times the program's
            duration, and at least 600.

    Returns:
        The content of the file.

    Raises:
        ReportError: The program does not exist, failed, took too long or
            printed no JSON. An existing file is kept.
    """
    try:  # before the program runs
        (folder / _LINES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(
            f"Cannot create the folder {folder}: {error}."
        ) from error
    command = program.command(name, small, pythons or {})
    arguments = list(program.small if small else program.arguments)
    load = [round(value, 2) for value in os.getloadavg()]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        printed = _output(
            name,
            [part.replace("{folder}", scratch) for part in command],
            limit or max(600, 5 * program.seconds),
        )
    record = {
        "program": name,
        "arguments": arguments,
        "small": "--small" in arguments or small,
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "load_before": load,
        "seconds": round(time.monotonic() - begin, 1),
        "lines": lines_of(name, printed),
    }
    path = folder / _LINES / f"{name}.json"
    new = path.with_suffix(".new")
    new.write_text(_text(record))
    new.replace(path)
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
    """Returns {program: content of its file}, sorted by name.

    Raises:
        ReportError: The folder does not exist, a file is not JSON, or it
            lacks a field.
    """
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a folder.")
    found = {}
    for path in sorted((folder / _LINES).glob("*.json")):
        try:
            record = json.loads(path.read_text())
        except ValueError as error:
            raise ReportError(f"{path} is not JSON: {error}.") from error
        fields = ("program", "machine", "versions", "commit", "date", "lines")
        for field in ("small", "load_before", "seconds", *fields):
            if not isinstance(record, dict) or field not in record:
                raise ReportError(f"{path} has no {field!r}.")
        found[record["program"]] = record
    return found


def expected_seconds(
    name: str, program: Program, records: Mapping[str, Mapping[str, Any]]
) -> float:
    """Returns the duration of the last full run, or the estimate."""
    record = records.get(name)
    return (
        record["seconds"] if record and not record["small"] else program.seconds
    )


def order(
    programs: Mapping[str, Program],
    records: Mapping[str, Mapping[str, Any]],
    budget: float | None,
) -> tuple[list[str], list[str]]:
    """Returns the programs to run, in order, and the skipped ones.

    Programs without figures come first, then those with the oldest figures.
    A program that exceeds the rest of the budget, in seconds, is skipped.
    """

    def age(name: str) -> str:
        record = records.get(name)
        return "" if not record or record["small"] else record["date"]

    taken, left = [], []
    for name in sorted(programs, key=lambda name: (age(name), name)):
        seconds = expected_seconds(name, programs[name], records)
        if budget is not None and seconds > budget:
            left.append(name)
            continue
        taken.append(name)
        if budget is not None:
            budget -= seconds
    return taken, left


def _run_all(names: Iterable[str], options: argparse.Namespace) -> list[str]:
    """Runs programs one after another; returns their errors."""
    errors = []
    for name in names:
        print(f"{name} ...", end=" ", flush=True)
        try:
            record = run(
                name,
                PROGRAMS[name],
                options.folder,
                small=options.small,
                pythons={
                    option: getattr(options, option[2:].replace("-", "_"))
                    for option in PEERS
                },
            )
        except ReportError as error:
            errors.append(str(error))
            print(f"failed: {error}", flush=True)
        else:
            count = len(record["lines"])
            print(f"{count} lines, {record['seconds']} s", flush=True)
    return errors


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
    runs.add_argument("names", nargs="*", metavar="NAME")
    runs.add_argument("--all", action="store_true", help="every program")
    runs.add_argument(
        "--budget",
        type=float,
        help="maximum total duration in seconds, by estimate",
    )
    runs.add_argument("--small", action="store_true", help="small sizes")
    for option, library in PEERS.items():
        runs.add_argument(option, help=f"an interpreter with {library}")
    commands.add_parser("draw", help="draw plots and write figures.md")
    commands.add_parser("list", help="list programs and their durations")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        new = options.command != "draw" and not options.folder.exists()
        records = {} if new else load(options.folder)
        if options.command == "draw":
            # Only drawing needs matplotlib.
            from benchmarks import report_plots, report_tables
            from benchmarks.peers import results_page

            report_tables.write(records, options.folder)
            results_page.write(records, options.folder)
            for path in report_plots.write(records, options.folder):
                print(path)
            return 0
    except ReportError as error:
        print(error, file=sys.stderr)
        return 1
    if options.command == "list":
        for name, program in PROGRAMS.items():
            seconds = expected_seconds(name, program, records)
            date = records[name]["date"] if name in records else "no figures"
            print(f"{name:30} {seconds:5.0f} s   {date}")
        return 0
    for name in options.names:
        if name not in PROGRAMS:
            parser.error(f"unknown program {name!r}; see `list`")
    if bool(options.names) == options.all:
        parser.error("name programs, or use --all")
    names = PROGRAMS if options.all else dict.fromkeys(options.names)
    taken, left = order(
        {name: PROGRAMS[name] for name in names}, records, options.budget
    )
    load_now = os.getloadavg()[0]
    if load_now > 1:
        print(
            f"The load is {load_now:.1f}; figures of a busy machine are not "
            "reliable.",
            file=sys.stderr,
        )
    errors = _run_all(taken, options)
    if left:
        print("skipped, over budget: " + ", ".join(left))
    return 1 if errors else 0


if __name__ == "__main__":
    # Exits normally, so that the running program is killed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
