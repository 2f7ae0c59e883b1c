"""The rules of CONTRIBUTING.md that a program can check."""

import ast
import re

import checkout

_CPP = (".h", ".c", ".cc")
_SOURCES = (*_CPP, ".py", ".bzl", "BUILD", ".sh", "WORKSPACE")


def _lines(pattern, suffixes, under=".", allowed=()):
    """Returns `file:line: text` of each line that matches the pattern."""
    return [
        f"{checkout.label(path)}:{number}: {line.strip()}"
        for path in checkout.files(*suffixes, under=under)
        if checkout.label(path) not in allowed
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_core_includes_only_core_and_the_standard_library():
    assert not _lines(r'#include "(?!tf_ops/core/)', _CPP, "tf_ops/core")
    foreign = "tensorflow|absl|tsl|xla|unsupported|Eigen|google|gtest"
    assert not _lines(rf"#include <({foreign})\b", _CPP, "tf_ops/core")


def test_core_does_not_throw():
    assert not _lines(r"^[^/]*\bthrow\b", _CPP, "tf_ops/core")


def _registrations():
    """Yields (op name, file, text of its registration)."""
    for path in checkout.files(".cc", under="tf_ops/ops"):
        for text in path.read_text().split("LODESTAR_OP(")[1:]:
            name = re.match(r'"(\w+)"', text)
            yield name and name.group(1), checkout.label(path), text


def test_ops_are_registered_in_their_folder_under_our_prefix():
    # LODESTAR_OP adds the prefix.
    assert not _lines(r"^\s*REGISTER_OP\(", (".cc", ".h"), "tf_ops")
    elsewhere = _lines(r"^\s*LODESTAR_OP\(", (".cc", ".h"), "tf_ops")
    assert not [line for line in elsewhere if "tf_ops/ops/" not in line]
    for name, file, _ in _registrations():
        assert name, file


def test_every_op_has_a_shape_function_and_a_doc():
    missing = [
        f"{file}: {name} has no {call}"
        for name, file, text in _registrations()
        for call in (r"\.State(?:ful|less)\(", r"\.Doc\(")
        if not re.search(call, text)
    ]
    assert not missing


def test_autograph_can_convert_functions_of_a_step():
    """AutoGraph warns about functions with assignment expressions."""
    found = [
        f"{path.relative_to(checkout.ROOT)}:{node.lineno}"
        for folder in ("embedding", "layers", "lookup", "ops", "optimizers")
        for path in checkout.files(".py", under=f"python/lodestar/{folder}")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.NamedExpr)
    ]
    assert not found


def test_sections_of_docstrings_are_indented_by_four():
    heading = r"^( *)(Args|Attributes|Raises|Returns|Yields|Call arguments):\n"
    assert not [
        f"{checkout.label(path)}:{text.count(chr(10), 0, found.end()) + 1}"
        for path in checkout.files(".py")
        for text in (path.read_text(),)
        for found in re.finditer(heading, text, re.M)
        if not re.match(found[1] + r" {4}\S", text[found.end() :])
    ]


def test_every_python_test_is_in_its_build_file():
    # An unlisted test would never run, and nothing would report it. (For C++
    # tests, see structure_test.py.)
    missing = []
    for path in checkout.files("_test.py", under="tests"):
        build, below = path.parent / "BUILD", ""
        if not build.exists():  # part of a target of the folder above
            build = path.parents[1] / "BUILD"
            below = rf'(?=[^)]*folders = \[[^]]*"{path.parent.name}")'
        text = build.read_text()
        # Without `tests`, the target includes the whole folder.
        whole = re.search(rf"lodestar_py_tests\((?![^)]*tests = ){below}", text)
        if not whole and (below or path.stem not in text):
            missing.append(checkout.label(path))
    assert not missing


def test_paths_in_the_pages_exist():
    named = r"`((?:tf_ops|python|tests|examples|benchmarks|docs)/[\w./]+\w)`"
    assert not [
        f"{checkout.label(page)}: {path}"
        for page in checkout.files(".md")
        for path in re.findall(named, page.read_text())
        # `x` is a placeholder for the reader's own file.
        if not re.search(r"/x(_\w+)?\.", path)
        and not (checkout.ROOT / path).exists()
    ]


def test_files_are_not_too_long():
    assert not [
        checkout.label(path)
        for path in checkout.files(*_SOURCES)
        if len(path.read_text().splitlines()) > 700
    ]


def test_nothing_is_left_for_later():
    # Split, so that this line does not match.
    assert not _lines(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", _SOURCES)
