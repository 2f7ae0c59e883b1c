"""The main program of every py_test: runs pytest on the given files."""

import os
import pathlib
import sys

import pytest

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    files = sys.argv[1:]
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    if shards > 1:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()
        files = files[int(os.environ["TEST_SHARD_INDEX"]) :: shards]
    arguments = ["-p", "no:cacheprovider", "--color=no", "-q", *files]
    # Prints where a test hangs outside of Python.
    arguments += ["-o", "faulthandler_timeout=250"]
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")  # bazel test --test_filter
    if only:
        arguments += ["-k", only]
    junit = os.environ.get("XML_OUTPUT_FILE")
    if junit:
        arguments.append("--junitxml=" + junit)
    status = pytest.main(arguments)
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and only and shards > 1:
        status = pytest.ExitCode.OK  # another shard has them
    sys.exit(status)
