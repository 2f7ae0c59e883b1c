"""lodestar._library: the version check and what it says."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from lodestar import __version__, _library


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_of_keras_is_refused_at_import(backend):
    with pytest.raises(ImportError) as error:
        _library.check_backend(backend)
    line = f"lodestar: Keras runs on the backend '{backend}', wanted"
    assert line in str(error.value)
    assert "Set KERAS_BACKEND=tensorflow in the environment" in str(error.value)
    done = subprocess.run(
        [sys.executable, "-c", "import lodestar"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "KERAS_BACKEND": backend,
        },
    )
    # Said as well where the backend is not installed.
    assert f"ImportError: {line}" in done.stderr.splitlines()[-1]


def test_the_loaded_object_has_the_version_of_the_package():
    version = _library.gen_ops.lodestar_library_version().numpy().decode()
    assert version == f"{__version__} for TensorFlow {tf.__version__}"


def test_the_loaded_object_was_built_for_this_tensorflow():
    assert _library.built_for(_library.path) == tf.__version__


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


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", _library._MARKER, _library._MARKER + b"2.21.0"],
)
def test_a_file_without_the_whole_marker_is_refused(tmp_path, content):
    path = tmp_path / "other.so"
    path.write_bytes(content)
    with pytest.raises(ImportError, match="other.so is not Lodestar's library"):
        _library.built_for(path)


def test_a_library_that_was_cut_is_refused(tmp_path):
    path = tmp_path / "cut.so"
    whole = _library.path.read_bytes()
    path.write_bytes(whole[: whole.index(_library._MARKER) + 64])
    with pytest.raises(ImportError, match="cut.so is not .* or not all of it"):
        _library.load(path)


def test_what_the_loader_refuses_is_named_with_a_remedy(tmp_path):
    path = tmp_path / "text.so"
    version = tf.__version__.encode()
    path.write_bytes(b"text" * 20 + _library._MARKER + version + b"\0")
    with pytest.raises(ImportError) as error:
        _library.load(path)
    assert f"{path} cannot be loaded: " in str(error.value)
    assert "`.venv/bin/bazel build //tf_ops:_lodestar_ops.so`" in str(
        error.value
    )
