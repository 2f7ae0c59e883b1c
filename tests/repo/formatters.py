"""Commands of the formatters and linters, for checks and for fixes.

`bazel run //tests/repo:formatters` rewrites the files of the checkout.
"""

import os
import subprocess
import sys

import checkout


def _tool(name: str) -> str:
    return os.path.join(os.path.dirname(sys.executable), name)


def _cpp() -> list[str]:
    return [str(path) for path in checkout.files(".h", ".c", ".cc")]


def checks() -> dict[str, list[str]]:
    """Returns the commands that fail if a file needs changes."""
    return {
        "clang-format": [
            _tool("clang-format"),
            "--dry-run",
            "-Werror",
            *_cpp(),
        ],
        "ruff format": [_tool("ruff"), "format", "--no-cache", "--check", "."],
        "ruff check": [_tool("ruff"), "check", "--no-cache", "--quiet", "."],
    }


def fixes() -> list[list[str]]:
    """Returns the commands that rewrite the files."""
    return [
        [_tool("clang-format"), "-i", *_cpp()],
        [_tool("ruff"), "format", "--no-cache", "."],
        [_tool("ruff"), "check", "--no-cache", "--fix", "."],
    ]


if __name__ == "__main__":
    sys.exit(
        max(
            subprocess.run(command, cwd=checkout.ROOT).returncode
            for command in fixes()
        )
    )
