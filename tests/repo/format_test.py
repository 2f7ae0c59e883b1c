"""Checks every file with the pinned formatters and linters."""

import subprocess

import checkout
import formatters
import pytest


@pytest.mark.parametrize("name", list(formatters.checks()))
def test_formatted(name):
    result = subprocess.run(
        formatters.checks()[name],
        cwd=checkout.ROOT,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        pytest.fail(
            f"{result.stdout}{result.stderr}\n"
            "`bazel run //tests/repo:formatters` fixes most of these.",
            pytrace=False,
        )
