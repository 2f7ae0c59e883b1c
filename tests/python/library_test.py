"""lodestar._library: the version check and what it says."""

import pytest
import tensorflow as tf

from lodestar import _library


def test_the_loaded_object_was_built_for_this_tensorflow():
    assert _library.built_for(_library._path) == tf.__version__


def test_another_release_is_refused_by_both_names_and_a_remedy():
    with pytest.raises(ImportError) as error:
        _library.check_version("2.16.2", "2.21.0")
    for part in (
        "2.16.2",
        "2.21.0",
        "./configure.sh --tensorflow-version 2.21.0",
    ):
        assert part in str(error.value)


def test_a_patch_release_is_accepted():
    _library.check_version("2.21.0", "2.21.1")


def test_a_file_without_the_marker_is_refused(tmp_path):
    path = tmp_path / "other.so"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(ImportError, match="other.so is not Lodestar's library"):
        _library.built_for(path)
