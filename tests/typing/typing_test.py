"""Checks the types of the package, of the ops, and of users' programs."""

import ast
import dataclasses
import inspect
import pathlib
import re
import subprocess
import sys
import types

import keras
import op_stubs
import pytest
import tensorflow as tf

import lodestar
from lodestar import _bases
from lodestar.data import Column, open_dataset
from lodestar.data.files.formats import FORMATS
from lodestar.data.open_dataset import OpenArguments
from lodestar.data.record_dataset import ReadArguments, ReadOptions
from lodestar.schema.column import ColumnArguments

# Bazel's copies of this file are links to it.
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAMS = _ROOT / "tests" / "typing"
# A strict project of a user, for whom TensorFlow and Keras have no types.
_USERS_SETTINGS = f"""
[mypy]
mypy_path = {_ROOT / "python"}
strict = true
disallow_subclassing_any = false
follow_imports = silent
[mypy-keras.*,tensorflow.*]
ignore_missing_imports = true
"""


def _mypy(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={folder}", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )


def test_package(tmp_path):
    result = _mypy(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def _stub(path):
    """Returns the names that each class in a stub file declares."""
    names = {}
    for node in ast.walk(ast.parse((_ROOT / path).read_text())):
        if not isinstance(node, ast.ClassDef) or node.name in names:
            continue
        own = {
            getattr(child, "name", None) or child.target.id
            for child in node.body
            if isinstance(child, ast.FunctionDef | ast.AnnAssign)
        }
        bases = (names.get(base.id, set()) for base in node.bases)
        names[node.name] = own.union(*bases)
    return names


def test_users_programs(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(_USERS_SETTINGS)
    correct = _PROGRAMS / "user_program.py"
    mistaken = _PROGRAMS / "mistaken_program.py"
    result = _mypy(
        tmp_path, f"--config-file={settings}", str(correct), str(mistaken)
    )
    found = re.findall(r"(\w+)\.py:(\d+): error: ", result.stdout)
    wrong = [
        (mistaken.stem, str(number))
        for number, line in enumerate(mistaken.read_text().splitlines(), 1)
        if line.endswith("# mistake")
    ]
    assert len(wrong) > 20
    assert sorted(set(found)) == sorted(wrong), result.stdout + result.stderr


@pytest.mark.parametrize(
    "make",
    [
        keras.callbacks.Callback,
        keras.callbacks.EarlyStopping,
        keras.callbacks.TensorBoard,
        keras.layers.Layer,
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
        keras.metrics.Metric,
        lambda: keras.optimizers.Optimizer(0.1),
        lambda: keras.Variable(0.0),
        lambda: tf.data.Dataset.range(1),
    ],
)
def test_declared_attributes_of_bases(make):
    found = make()
    declared = {
        getattr(_bases, name): names
        for name, names in _stub("python/lodestar/_bases.pyi").items()
    }
    names = next(declared[cls] for cls in type(found).mro() if cls in declared)
    public = {name for name in dir(found) if not name.startswith("_")}
    assert public <= names


def test_declared_arguments_of_optimizers():
    path = "python/lodestar/optimizers/keras_optimizers.pyi"
    tree = ast.parse((_ROOT / path).read_text())
    classes = {c.name: c for c in tree.body if isinstance(c, ast.ClassDef)}
    options = [name.target.id for name in classes["_Options"].body]
    made = [name for name in classes if not name.startswith("_")]
    assert set(made) == {*lodestar.optimizers.__all__} - {
        "LossScaleOptimizer",
        "clip_by_global_norm",
        "wrap",
    }
    for name in made:
        cls = classes[name]
        while cls.bases[0].id in classes:
            cls = classes[cls.bases[0].id]
        start = next(c for c in cls.body if isinstance(c, ast.FunctionDef))
        names = [argument.arg for argument in start.args.args[1:]]
        defaults = [ast.literal_eval(value) for value in start.args.defaults]
        signature = inspect.signature(getattr(lodestar.optimizers, name))
        parameters = list(signature.parameters.values())
        named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
        assert [*names, *options] == named
        assert defaults == [p.default for p in parameters[: len(names)]], name


def _fields(cls):
    return {field.name for field in dataclasses.fields(cls)}


def _named_arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_declared_arguments_are_the_options():
    read = ReadArguments.__optional_keys__
    assert read == _fields(ReadOptions) - {"batch_size"}
    of_kinds = {"name", "kind", "dtype", "shape", "size"}
    assert ColumnArguments.__optional_keys__ == _fields(Column) - of_kinds
    readers = [f.dataset for f in FORMATS.values() if f.dataset]
    named = {n for f in [open_dataset, *readers] for n in _named_arguments(f)}
    assert OpenArguments.__optional_keys__ == (read | named) - {"split"}


def test_an_argument_of_no_known_kind_is_refused():
    module = types.ModuleType("ops")
    module.lodestar_x = lambda a: None
    module.lodestar_x.__doc__ = (
        "\n  Args:\n    a: A `thing`.\n\n  Returns:\n    The created Operation."
    )
    with pytest.raises(ValueError, match="lodestar_x: 'A `thing`.' has an unk"):
        op_stubs.stub(module)
