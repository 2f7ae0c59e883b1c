"""Prints the results of tools/matrix.sh as a Markdown table.

    python tools/matrix_table.py FOLDER...

A folder has `versions`, with lines for TensorFlow, Keras, Python and NumPy, and
for each run of pytest NAME.status, its exit code, and NAME.xml. The exit code
is 1 if a test failed.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree

_HEAD = (
    "TensorFlow",
    "Keras",
    "Python",
    "NumPy",
    "passed",
    "failed",
    "skipped",
)
# Exit codes of pytest: all passed, some failed, none selected.
_TOLD = ("0", "1", "5")


def counts(folder: pathlib.Path) -> collections.Counter[str]:
    """Counts the tests that passed, failed and were skipped.

    A run with another exit code counts as one failed test.
    """
    found: collections.Counter[str] = collections.Counter()
    for status in sorted(folder.glob("*.status")):
        report = status.with_suffix(".xml")
        if status.read_text().strip() not in _TOLD or not report.exists():
            found["failed"] += 1
        if not report.exists():
            continue
        for suite in xml.etree.ElementTree.parse(report).iter("testsuite"):
            number = {
                name: int(suite.get(name, 0))
                for name in ("tests", "errors", "failures", "skipped")
            }
            failed = number["errors"] + number["failures"]
            found["failed"] += failed
            found["skipped"] += number["skipped"]
            found["passed"] += number["tests"] - failed - number["skipped"]
    return found


def main(folders: list[str]) -> int:
    """Prints the table; returns the exit code."""
    print(f"| {' | '.join(_HEAD)} |")
    print(f"|{'---|' * len(_HEAD)}")
    failed = 0
    for folder in map(pathlib.Path, folders):
        found = counts(folder)
        cells = (folder / "versions").read_text().splitlines()
        cells += [str(found[name]) for name in _HEAD[4:]]
        print(f"| {' | '.join(cells)} |")
        failed += found["failed"] or not found["passed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
