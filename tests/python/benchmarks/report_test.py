"""Tests of the report: it runs programs, writes their files and draws plots."""

import re
import sys
import time
from pathlib import Path

import matplotlib
import pytest
from matplotlib.text import Text

from benchmarks import report, report_plots, report_tables
from lodestar.version import __version__

FIGURES = Path(__file__).resolve().parents[3] / "docs" / "benchmarks"
NATIVE = report.Program(native=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Yields a function that adds a built program to an empty checkout."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    programs = tmp_path / "bazel-bin/benchmarks"
    programs.mkdir(parents=True)

    def add(name, text):
        path = programs / name
        path.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
        path.chmod(0o755)

    return add


def record_of(lines, **fields):
    record = {
        "program": "x_benchmark",
        "arguments": [],
        "small": False,
        "machine": {"cpu": "Some CPU", "threads": 2, "memory_gb": 8.0},
        "versions": {"tensorflow": "2.0"},
        "commit": "abc",
        "date": "2026-01-01 00:00",
        "load_before": [0.5, 0.0, 0.0],
        "seconds": 2.0,
        "lines": lines,
    }
    return record | fields


def test_files_have_all_fields():
    records = report.load(FIGURES)
    assert {program for program, _ in report_plots.PLOTS.values()} <= set(
        records
    )
    for name, record in records.items():
        assert name in report.PROGRAMS
        assert set(record["machine"]) == {
            "cpu",
            "threads",
            "memory_gb",
            "kernel",
        }
        assert set(record["versions"]) == {
            *("lodestar", "tensorflow", "keras", "numpy", "python"),
            "compiler",
        }
        assert record["lines"] and all("work" in x for x in record["lines"])
        assert len(record["load_before"]) == 3
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", record["date"])


def test_plots_and_tables_are_drawn_from_the_files(tmp_path):
    records = report.load(FIGURES)
    assert (FIGURES / "figures.md").read_text() == report_tables.text(records)
    drawn = report_plots.write(records, tmp_path)
    assert [path.stem for path in drawn] == list(report_plots.PLOTS)
    for path in drawn:
        kept = (FIGURES / path.name).read_text()
        if f"Matplotlib v{matplotlib.__version__}," in kept:
            assert path.read_text() == kept, path.name


def test_plots_can_be_read_on_a_phone():
    records = report.load(FIGURES)
    for program, draw in report_plots.PLOTS.values():
        figure = draw(records)
        texts = [text for text in figure.findobj(Text) if text.get_text()]
        points = min(text.get_fontsize() for text in texts)
        pixels = points / 72 * 360 / figure.get_figwidth()
        assert pixels > 9, program
        figure.draw_without_rendering()
        right = max(text.get_window_extent().x1 for text in texts)
        assert right <= figure.bbox.x1, program


def test_output_is_stored(checkout, tmp_path):
    checkout(
        "tiny",
        "print('made {} files')\nprint('{\"work\": \"w\"}')\n"
        "print('noise', file=sys.stderr)\n"
        "import json\n"
        "print(json.dumps({'work': 'a', 'list': sys.argv[1:]}))",
    )
    program = report.Program(("--runs", "7"), native=True)
    folder = tmp_path / "a" / "ü b"
    record = report.run("tiny", program, folder)
    assert record["lines"] == [
        {"work": "w"},
        {"work": "a", "list": ["--runs", "7"]},
    ]
    assert record["versions"]["lodestar"] == __version__
    assert record["versions"]["compiler"] == "none"
    assert record["commit"] == "unknown" and not record["small"]
    assert record["arguments"] == ["--runs", "7"]
    assert report.load(folder) == {"tiny": record}
    # The old file is kept if the program fails.
    checkout("tiny", "sys.exit(1)")
    with pytest.raises(report.ReportError):
        report.run("tiny", program, folder)
    assert report.load(folder) == {"tiny": record}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "print('{}')\nsys.exit('no such disk')",
            "tiny failed with status 1: no such disk",
        ),
        ("sys.exit(7)", "tiny failed with status 7: no output"),
        ("print('done')", "tiny printed no JSON line."),
        (
            "print('a\\n{\"work\": 1')",
            "tiny: line 2 of the output is not JSON: '{\"work\": 1'",
        ),
    ],
)
def test_errors_of_programs(checkout, tmp_path, text, message):
    checkout("tiny", text)
    with pytest.raises(report.ReportError) as error:
        report.run("tiny", NATIVE, tmp_path)
    assert str(error.value) == message
    assert not list(tmp_path.rglob("*.json"))


def test_a_program_that_is_not_built(checkout, tmp_path):
    message = r"tiny: .*bazel-bin/benchmarks/tiny does not exist. Build it: "
    with pytest.raises(report.ReportError, match=message):
        report.run("tiny", NATIVE, tmp_path)


@pytest.mark.parametrize("end", ["print('{}')", "time.sleep(3600)"])
def test_child_processes_end_with_the_program(checkout, tmp_path, end):
    pid = tmp_path / "pid"
    checkout(
        "tiny",
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n{end}",
    )
    if "print" in end:  # and nobody reads the other end of its stdout
        assert report.run("tiny", NATIVE, tmp_path)["lines"] == [{}]
    else:
        with pytest.raises(report.ReportError, match="took longer than 2 s"):
            report.run("tiny", NATIVE, tmp_path, limit=2)
    assert not is_running(int(pid.read_text()))


def is_running(pid):
    """Returns whether a process is running, after it was sent a signal."""
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()
        except FileNotFoundError:
            return False
        if state[0] == "Z":  # a zombie: nobody has waited for it
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("load", [0.9, 3.04])
def test_a_busy_machine_causes_a_warning(
    checkout, tmp_path, monkeypatch, capsys, load
):
    checkout("tiny", "print('{}')")
    monkeypatch.setattr(report, "PROGRAMS", {"tiny": NATIVE})
    monkeypatch.setattr(report.os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert not report.main(["--folder", str(tmp_path / "x"), "run", "--all"])
    warning = "The load is 3.0; figures of a busy machine are not reliable.\n"
    assert capsys.readouterr().err == (warning if load > 1 else "")


def test_programs_of_python_run_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A module that is not a program is found, but prints nothing.
    with pytest.raises(
        report.ReportError, match="^measure printed no JSON line"
    ):
        report.run("measure", report.Program(), tmp_path)


def test_commands():
    program = report.Program(("--runs", "7"), peers=True)
    start = [sys.executable, "-m", "benchmarks.x"]
    pythons = {"--tfra-python": None, "--torch-python": "/p/python"}
    assert program.command("x", False, {}) == [*start, "--runs", "7"]
    assert program.command("x", True, pythons) == [
        *(*start, "--small"),
        "--torch-python=/p/python",
    ]
    assert report.Program().command("x", False, pythons) == start


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ({"ratio": 2.0, "wanted": 2}, True),
        ({"ratio": 1.9, "wanted": 2}, False),
        ({"ratio": 9.0, "wanted": "<= 10"}, True),
        ({"ratio": 0.04, "wanted": "< 0.03"}, False),
        ({"time_ratio": 2.1, "ratio": 0.1, "wanted": "at most 2"}, False),
        ({"a": 1.04, "ratio": 3.0, "wanted": "a <= 1.05"}, True),
        ({"time_share": 0.04, "wanted": 0.03}, False),
        ({"gigabytes_a_second": 1.2, "wanted": 1.0}, True),
        ({"ratio": 1.0, "wanted": "none"}, None),
        ({"ratio": 1.0, "wanted": "10 x TFRA"}, None),
        ({"ratio": 1.0}, None),
        ({"wanted": 1.0}, None),
    ],
)
def test_targets(line, reached):
    assert report_tables.reached(line) is reached


def test_tables():
    lines = [
        {"work": "a|b", "ratio": 1.5, "wanted": 1, "checksum": "0"},
        {"work": "c", "ratio": 0.5, "wanted": 1, "checksum": "1"},
        {"work": "d", "ms": 3, "points": [1, 2]},
    ]
    found = report_tables.text({"x_benchmark": record_of(lines)})
    assert "2 lines have a target; 1 of them miss it:" in found
    assert "- [x_benchmark](#x_benchmark): c\n" in found
    assert (
        "Some CPU, 2 hardware threads, 8 GB; TensorFlow 2.0; commit abc"
        in found
    )
    assert "load before 0.5.\n" in found
    small = report_tables.text({"x_benchmark": record_of(lines, small=True)})
    assert "load before 0.5; small sizes.\n" in small
    assert "0 lines have a target" in small and "reached" not in small
    assert found.endswith(
        "| work | ratio | wanted | reached |\n"
        "| --- | --- | --- | --- |\n"
        "| a\\|b | 1.5 | 1 | yes |\n"
        "| c | 0.5 | 1 | **no** |\n"
        "\n"
        "| work | ms |\n"
        "| --- | --- |\n"
        "| d | 3 |\n"
    )


def test_the_command_line(checkout, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "PROGRAMS", {"tiny": NATIVE, "bad": NATIVE})
    checkout("tiny", 'print(\'{"work": "w"}\')')
    checkout("bad", "sys.exit('broken')")
    at = ["--folder", str(tmp_path / "figures")]
    assert report.main([*at, "run", "--all"]) == 1
    printed = capsys.readouterr().out
    assert "bad ... failed: bad failed with status 1: broken" in printed
    assert "tiny ... 1 lines" in printed
    assert report.main([*at, "run", "tiny"]) == 0
    assert report.main([*at, "draw"]) == 0
    assert "| w |" in (tmp_path / "figures/figures.md").read_text()
    for wrong, message in (
        (["run", "tinny"], "unknown program 'tinny'"),
        (["run"], "name programs, or use --all"),
        (["run", "--all", "tiny"], "name programs, or use --all"),
    ):
        with pytest.raises(SystemExit):
            report.main([*at, *wrong])
        assert message in capsys.readouterr().err
