"""Each guarantee of docs/internals/consistency.md names existing tests."""

import re

import checkout

_PAGE = (checkout.ROOT / "docs/internals/consistency.md").read_text()
# From the first guarantee to the notes on the tests themselves.
_PROMISES = _PAGE[_PAGE.index("## Threads") : _PAGE.index("## How the tests")]
_NAMED = r"`(tests/[\w/]+_test\.(?:cc|py))`:\s*((?:\w+,?\s*)+)"


def _sentences():
    return re.split(r"\n- ", re.sub(r"(^|\n)## .*", "", _PROMISES))[1:]


def test_each_sentence_names_its_test():
    assert len(_sentences()) > 20
    assert not [s for s in _sentences() if not re.search(_NAMED, s)]


def test_each_named_test_exists():
    missing = []
    for path, names in re.findall(_NAMED, _PROMISES):
        source = (checkout.ROOT / path).read_text()
        for name in re.findall(r"\w+", names):
            found = re.search(
                rf"^(def {name}\(|(TYPED_)?TEST(_F|_P)?\(\w+,\s*{name}\))",
                source,
                re.M,
            )
            if not found:
                missing.append(f"{path}: {name}")
    assert not missing
