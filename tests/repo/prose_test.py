"""Checks that pages, docstrings, comments and errors read as plain English.

A pattern finds a habit that makes sentences hard to read, or a word for which
the field has another one. A hit may be right where it is, so the test limits
the number of hits per 1,000 words of a folder, not each one.
"""

import ast
import collections
import io
import re
import tokenize
import tomllib

import checkout
import pytest

_PATTERNS = [
    (pattern["find"], pattern["bad"], pattern["good"])
    for pattern in tomllib.loads(
        (checkout.ROOT / "tests/repo/prose_patterns.toml").read_text()
    )["pattern"]
]
_FINDERS = {
    pattern: re.compile(pattern.replace(" ", r"\s+"), re.M)
    for pattern, _, _ in _PATTERNS
}
_PAGES, _DOCSTRINGS = "pages", "docstrings"
_COMMENTS, _MESSAGES = "comments", "messages"
# Maximum hits per 1,000 words in each top-level folder.
_LIMITS = {_PAGES: 1.0, _DOCSTRINGS: 1.0, _COMMENTS: 1.5, _MESSAGES: 1.0}
_PYTHON = (".bzl", ".py", "BUILD")
_CPP = (".c", ".cc", ".h")
_SCRIPTS = (".bazelrc", ".sh", ".toml", "Dockerfile", "WORKSPACE")


def _blank(pattern, text):
    """Removes matches from a text, and keeps its lines."""
    return re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text)


def _without_code(text):
    text = _blank(r"(?ms)^ *```.*?^ *```$|^ *(?:>>>|\.\.\.) .*?$", text)
    return _blank(r"`[^`\n]*`", text)


def _page(text):
    text = _blank(r"\]\([^)\n]*\)|<[^>]*>|(?m:^(?: {4}|\t).*$)", text)
    yield _PAGES, 1, _without_code(text)


def _blocks(lines):
    """Joins comments, pairs of number and text, of consecutive lines."""
    block = []
    for number, text in lines:
        if block and number != block[-1][0] + 1:
            yield _COMMENTS, block[0][0], "\n".join(t for _, t in block)
            block = []
        block.append((number, text))
    if block:
        yield _COMMENTS, block[0][0], "\n".join(t for _, t in block)


def _message(node):
    """Returns the text of a raised error, with x for each inserted value."""
    parts = []
    for part in ast.walk(node):
        if isinstance(part, ast.JoinedStr):
            values = [getattr(v, "value", "") for v in part.values]
            parts.append(
                "".join(v if isinstance(v, str) else "`x`" for v in values)
            )
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            parts.append(part.value)
    return _without_code("\n".join(part.replace("\n", " ") for part in parts))


def _python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            # Parts of an f-string are counted once, as a whole.
            for argument in node.exc.args:
                if isinstance(argument, ast.JoinedStr | ast.Constant):
                    message = _message(argument).partition("\n")[0]
                    yield _MESSAGES, argument.lineno, message
        documented = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef)
        if not isinstance(node, (ast.Module, *documented)):
            continue
        if (docstring := ast.get_docstring(node, clean=False)) is not None:
            yield _DOCSTRINGS, node.body[0].lineno, _without_code(docstring)
    yield from _blocks(
        (token.start[0], token.string.lstrip("#!: "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    )


def _cpp(text):
    for doc in re.finditer(r'(?s)R"doc\((.*?)\)doc"', text):
        line = text.count("\n", 0, doc.start()) + 1
        yield _DOCSTRINGS, line, _without_code(doc[1])
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(
            r'((?:[^"/]|"(?:\\.|[^"\\])*"|/(?!/))*)//+(.*)', line
        )
        if comment:
            found.append((number, comment[2].strip()))
    yield from _blocks(found)


def _script(text):
    yield from _blocks(
        (number, line.strip().lstrip("#! "))
        for number, line in enumerate(text.splitlines(), 1)
        if line.lstrip().startswith("#")
    )


def _prose():
    """Yields folder, kind, label of the file, line and text."""
    for suffixes, read in (
        ((".md",), _page),
        (_PYTHON, _python),
        (_CPP, _cpp),
        (_SCRIPTS, _script),
    ):
        for path in checkout.files(*suffixes):
            label = checkout.label(path)
            folder = label.partition("/")[0] if "/" in label else "."
            for kind, line, text in read(path.read_text()):
                yield folder, kind, label, line, text


def _hits(text):
    """Yields the offset of each hit, and the words around it."""
    for finder in _FINDERS.values():
        for hit in finder.finditer(text):
            around = text[max(0, hit.start() - 40) : hit.end() + 40]
            yield hit.start(), " ".join(around.split())


@pytest.mark.parametrize("pattern, bad, good", _PATTERNS)
def test_a_pattern_finds_the_bad_sentence_only(pattern, bad, good):
    assert _FINDERS[pattern].search(bad)
    assert not list(_hits(good)), good


def test_prose_is_found():
    source = (
        '"""Page `a, too`.\n\n>>> b, too\n"""\n# one\n# two\n'
        'raise ValueError(f"{x}: is no y")  # three\n'
    )
    found = sorted((k, n, t.split()) for k, n, t in _python(source))
    assert found == [
        (_COMMENTS, 5, ["one", "two", "three"]),
        (_DOCSTRINGS, 1, ["Page", "."]),
        (_MESSAGES, 7, [":", "is", "no", "y"]),
    ]
    page = "Text [a](b, too) `c`\n```sh\nd\n```\n\n    e\nEnd\n"
    assert [t.split() for _, _, t in _page(page)] == [["Text", "[a", "End"]]
    code = 'f("a//b");  // one\n// two\n\n.Doc(R"doc(\nthree\n)doc");\n'
    assert [(k, n, t.split()) for k, n, t in _cpp(code)] == [
        (_DOCSTRINGS, 4, ["three"]),
        (_COMMENTS, 1, ["one", "two"]),
    ]
    script = "#!/bin/sh\n# one\necho '# two'\n"
    assert [t.split() for _, _, t in _script(script)] == [["/bin/sh", "one"]]


def test_text_is_plain_english():
    words = collections.Counter()
    places = collections.defaultdict(list)
    for folder, kind, label, line, text in _prose():
        words[folder, kind] += len(re.findall(r"[A-Za-z']+", text))
        for offset, around in _hits(text):
            line_of_hit = line + text.count("\n", 0, offset)
            places[folder, kind].append(f"{label}:{line_of_hit}: {around}")
    failed = []
    for (folder, kind), found in sorted(places.items()):
        rate = 1000 * len(found) / max(1, words[folder, kind])
        # A single hit may be right, however few words there are.
        if rate > _LIMITS[kind] and len(found) > 1:
            failed.append(
                f"{folder}, {kind}: {rate:.1f} hits per 1,000 words, "
                f"limit {_LIMITS[kind]}:\n  " + "\n  ".join(found)
            )
    assert not failed, "\n".join(failed)
