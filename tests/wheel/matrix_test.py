"""tools/matrix.sh refuses wrong options before it builds for hours."""

import pathlib
import subprocess

import pytest

_SCRIPT = pathlib.Path(__file__).absolute().parents[2] / "tools" / "matrix.sh"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "no VERSION given; see --help"),
        (["2.20"], "'2.20' is not a version of TensorFlow such as 2.20.0"),
        (
            ["2.20.0", "2.20.1"],
            "2.20.1: a wheel has one library for all of 2.20;",
        ),
        (
            ["--jobs", "0", "2.20.0"],
            "--jobs must be a positive number, got '0'",
        ),
        (
            ["--library", "none.so", "2.20.0"],
            "--library: '{}/none.so' is not Lodestar's library",
        ),
        (
            ["--library", "old.so", "2.20.0"],
            "--library: '{}/old.so' is for TensorFlow 2.9, not for a given",
        ),
        (["--tests", "none", "2.20.0"], "--tests: 'none' does not exist"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, message, tmp_path):
    library = tmp_path / "old.so"
    library.write_bytes(b"\0LODESTAR_BUILT_FOR_TENSORFLOW=2.9.0\0")
    done = subprocess.run(
        ["bash", _SCRIPT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"matrix.sh: {message.format(tmp_path)}")
