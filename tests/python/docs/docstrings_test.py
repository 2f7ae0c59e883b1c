"""Every docstring example runs and prints the output it shows."""

import doctest

import docstring_examples
import pytest
from processes import Interpreter

_FOUND = docstring_examples.find()


def test_examples_are_found():
    assert len(_FOUND) > 80


@pytest.mark.parametrize("name", _FOUND)
def test_the_examples_of_a_docstring_run(name):
    test = _FOUND[name]
    if docstring_examples.needs_a_process(test):
        with Interpreter() as process:
            process.run(
                f"import docstring_examples as d; d.run(d.find()[{name!r}])"
            )
    else:
        docstring_examples.run(test)


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
