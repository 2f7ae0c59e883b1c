"""The main of every py_test: runs pytest on the files it is given."""

import os
import sys

import pytest

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = ["-p", "no:cacheprovider", "--color=no", "-q", *sys.argv[1:]]
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")  # bazel test --test_filter
    if only:
        arguments += ["-k", only]
    junit = os.environ.get("XML_OUTPUT_FILE")
    if junit:
        arguments.append("--junitxml=" + junit)
    sys.exit(pytest.main(arguments))
