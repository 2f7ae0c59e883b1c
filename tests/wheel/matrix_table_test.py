"""tools/matrix_table.py: its counts, and when a run fails."""

import matrix_table
import pytest

_XML = (
    '<testsuites><testsuite tests="{}" errors="{}" failures="{}" skipped="{}"/>'
)


@pytest.fixture
def folder(tmp_path):
    lines = ["tensorflow-cpu 2.20.0", "3.15.1", "3.11.2", "2.1.3"]
    (tmp_path / "versions").write_text("\n".join(lines) + "\n")
    return tmp_path


def _ran(folder, name, status, *numbers):
    (folder / f"{name}.status").write_text(f"{status}\n")
    if numbers:
        text = _XML.format(*numbers) + "</testsuites>"
        (folder / f"{name}.xml").write_text(text)


def test_a_row_adds_up_all_runs(folder, capsys):
    _ran(folder, "a", 0, 10, 0, 0, 2)
    _ran(folder, "b", 0, 5, 0, 0, 0)
    assert matrix_table.main([str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| TensorFlow | Keras | Python | NumPy | passed | failed | skipped |",
        "|---|---|---|---|---|---|---|",
        "| tensorflow-cpu 2.20.0 | 3.15.1 | 3.11.2 | 2.1.3 | 13 | 0 | 2 |",
    ]


@pytest.mark.parametrize(
    "status, numbers, failed",
    [
        (1, (10, 1, 2, 0), 3),
        (139, (), 1),  # a crash before the report
        (2, (3, 0, 0, 0), 1),  # interrupted after it
        (0, (), 1),
    ],
)
def test_failures_are_counted_and_listed(
    folder, capsys, status, numbers, failed
):
    _ran(folder, "a", 0, 4, 0, 0, 0)
    _ran(folder, "b", status, *numbers)
    assert matrix_table.main([str(folder)]) == 1
    assert f"| {failed} | 0 |" in capsys.readouterr().out


def test_that_no_test_ran_is_a_failure(folder):
    _ran(folder, "a", 5, 0, 0, 0, 0)
    assert matrix_table.main([str(folder)]) == 1
