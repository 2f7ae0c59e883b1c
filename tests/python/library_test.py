"""lodestar._library: the version check and its messages."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from lodestar import __version__, _library
from lodestar._op_wrappers import OpWrappers


def _import(code="", **environment):
    """Returns the last line of stderr of a process that imports lodestar."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nimport lodestar"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environment,
        },
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda ops: ops.lodestar_embedding_variable(
                dim=65537, table_name="t"
            ),
            "table 't': `dim` must be in [1, 65536], got 65537.",
        ),
        (
            lambda ops: ops.lodestar_sequence_pool(
                tf.ones([2, 1]), tf.constant([0, 5], tf.int64), 0.0
            ),
            "",
        ),
    ],
)
def test_errors_of_eager_ops_are_sentences(call, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(_library.gen_ops)
    text = str(raised.value)
    assert "[Op:" not in text and "{{" not in text and text.endswith(".")
    assert message in text


@pytest.mark.parametrize("backend", ["jax", "torch", "bogus"])
def test_another_backend_of_keras_is_refused_at_import(backend):
    with pytest.raises(ImportError) as error:
        _library.check_backend(backend)
    line = f"lodestar: the Keras backend must be 'tensorflow', got '{backend}'"
    assert line in str(error.value)
    assert "Set KERAS_BACKEND=tensorflow in the environment" in str(error.value)
    if backend == "jax":  # also if the backend is not installed
        assert f"ImportError: {line}" in _import(KERAS_BACKEND=backend)


def test_a_backend_of_keras_own_settings_is_refused(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    line = _import(KERAS_HOME=str(tmp_path), KERAS_BACKEND="")
    assert (
        "lodestar: the Keras backend must be 'tensorflow', got 'torch'" in line
    )


@pytest.mark.parametrize(
    "name, wanted",
    [
        (
            "tensorflow",
            "TensorFlow is not installed. Install it with `pip install "
            "'tf-lodestar[tensorflow-cpu]'`",
        ),
        ("keras", "Keras is not installed. Install it with `pip install"),
    ],
)
def test_missing_packages_are_named_with_a_command(name, wanted):
    line = _import(f"sys.modules[{name!r}] = None")
    assert line.startswith(f"ImportError: lodestar: {wanted}")


@pytest.mark.parametrize("version", ["2.15.0", "3.4.1", "3.14.1"])
def test_an_old_keras_is_refused(version):
    with pytest.raises(ImportError) as error:
        _library.check_keras(version)
    assert str(error.value) == (
        f"lodestar: Keras must be 3.15 or later, got {version}. "
        "Install it with `pip install 'keras>=3.15'`."
    )
    _library.check_keras("3.15.0")
    _library.check_keras("4.0.0.dev1")


def test_an_untried_release_is_warned_of_in_one_line(recwarn):
    _library.warn_of_untried("3.15.9", "2.18.1")
    assert not recwarn
    _library.warn_of_untried("3.16.0", "2.21.0")
    _library.warn_of_untried("4.0.0.dev1", "2.22.0rc1")
    messages = [str(warning.message) for warning in recwarn]
    assert [message.split(" is installed")[0] for message in messages] == [
        "lodestar: Keras 3.16.0",
        "lodestar: Keras 4.0.0.dev1 and TensorFlow 2.22.0rc1",
    ]
    assert "\n" not in "".join(messages)


def test_the_import_loads_only_needed_modules():
    code = (
        "import keras, tensorflow\n"
        "before = set(sys.modules)\n"
        "import lodestar\n"
        "new = {n.split('.')[0] for n in set(sys.modules) - before}\n"
        "ops = vars(lodestar._library.gen_ops)\n"
        "made = [n for n in ops if n.startswith('lodestar_')]\n"
        "print(sorted(new), len(made), file=sys.stderr)"
    )
    names, _, count = _import(code).rpartition(" ")
    # TensorFlow's protocol buffers, and the small parts of pyarrow.
    others = {"google", "lodestar", "pyarrow", "yaml"}
    found = {name for name in eval(names) if name.isidentifier()}
    assert {n for n in found if not n.startswith("_cython")} <= others
    # The functions of an op are compiled at its first use.
    assert int(count) < 60 < len(dir(_library.gen_ops)) // 3


def test_functions_of_ops_are_those_that_tensorflow_makes():
    made = tf.load_op_library(str(_library.path))
    ours = _library.gen_ops
    names = [name for name in dir(made) if "odestar" in name]
    assert set(names) <= set(dir(ours))
    for name in names:
        there, here = getattr(made, name), getattr(ours, name)
        assert there.__doc__ == here.__doc__
        assert getattr(here, "__module__", None) is not None
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = ours.absent


def test_other_threads_see_whole_functions(monkeypatch):
    source = """
import threading
begun, goes_on = threading.Event(), threading.Event()
def add_fallback_dispatch_list(function): return function
_dispatch = __import__("types").SimpleNamespace(**globals())
@_dispatch.add_fallback_dispatch_list
def op(): return defined_later
begun.set()
goes_on.wait(60)
defined_later = 5
"""
    monkeypatch.setitem(sys.modules, "ops_of_test", None)
    ops = OpWrappers("ops_of_test", source, lambda function, *args: None)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: ops.op())
        assert ops.begun.wait(60)
        second = threads.submit(lambda: ops.op())
        concurrent.futures.wait([second], 0.1)
        ops.goes_on.set()
        assert (first.result(), second.result()) == (5, 5)


def test_another_error_of_the_import_stays_as_it_is():
    assert _library.explain_missing(RuntimeError("disk")) is None


def _libraries(folder, *releases):
    for release in releases:
        path = folder / f"tf{release}" / "_lodestar_ops.so"
        path.parent.mkdir()
        path.touch()


def test_a_wheel_has_a_library_for_each_release(tmp_path):
    _libraries(tmp_path, "2.9", "2.20", "2.21")
    for installed in ("2.20.0", "2.20.1", "2.20.0-rc1"):
        path = _library.choose(tmp_path, installed)
        assert path == tmp_path / "tf2.20" / "_lodestar_ops.so"
    with pytest.raises(ImportError) as error:
        _library.choose(tmp_path, "2.22.1")
    assert str(error.value) == (
        "lodestar: TensorFlow 2.22.1 is installed, but this wheel has libraries "
        "for 2.9, 2.20, 2.21. Install one of these: `pip install "
        "'tensorflow==2.21.*'`, or tensorflow-cpu if you use that."
    )


def test_a_library_of_a_wheel_is_not_to_be_built(tmp_path):
    path = pathlib.Path(tmp_path, "lodestar", "_ops", "tf2.21", "x.so")
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(ImportError, match="pip install --force-reinstall"):
        _library.built_for(path)


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
    with pytest.raises(ImportError, match="cut.so is not .* or is incomplete"):
        _library.load(path)


def test_errors_of_the_loader_have_a_remedy(tmp_path):
    path = tmp_path / "text.so"
    version = tf.__version__.encode()
    path.write_bytes(b"text" * 20 + _library._MARKER + version + b"\0")
    with pytest.raises(ImportError) as error:
        _library.load(path)
    assert f"{path} cannot be loaded: " in str(error.value)
    assert "`.venv/bin/bazel build //tf_ops:_lodestar_ops.so`" in str(
        error.value
    )
