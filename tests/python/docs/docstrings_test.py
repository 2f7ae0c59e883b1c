"""Every docstring example runs and prints the output it shows."""

import doctest

import docstring_examples
import pytest
from processes import Interpreter

_FOUND = docstring_examples.find()


def test_examples_are_found():
    assert len(_FOUND) > 80


@pytest.fixture(scope="module")
def with_cluster():
    """Returns a process for all examples that use one cluster."""
    with Interpreter() as process:
        yield process


@pytest.mark.parametrize("name", _FOUND)
def test_the_examples_of_a_docstring_run(name, request):
    test = _FOUND[name]
    code = f"import docstring_examples as d; d.run(d.find()[{name!r}])"
    if not docstring_examples.needs_a_process(test):
        docstring_examples.run(test)
    elif any("LocalCluster(" in example.source for example in test.examples):
        with Interpreter() as process:
            process.run(code)
    else:
        request.getfixturevalue("with_cluster").run(code)


def test_every_example_is_run():
    assert not [
        name
        for name, test in _FOUND.items()
        for example in test.examples
        if doctest.SKIP in example.options
    ]


@pytest.mark.parametrize(
    "example, error",
    [(">>> 1 + 1\n3", "Expected:"), (">>> nobody", "NameError")],
)
def test_an_example_that_is_wrong_fails(example, error):
    test = doctest.DocTestParser().get_doctest(example, {}, "x", None, 0)
    with pytest.raises(AssertionError, match=error):
        docstring_examples.run(test)
