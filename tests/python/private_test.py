"""Tests that only lodestar._private uses private names."""

import importlib
import inspect
import pkgutil
import re

import keras
import tensorflow as tf

import lodestar
from lodestar import _private


def modules():
    for found in pkgutil.walk_packages(lodestar.__path__, "lodestar."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def classes():
    for module in modules():
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                if module is not _private:
                    yield value


def names_of_others(cls):
    """Returns the private names that bases of TensorFlow and Keras give a class."""
    bases = [
        base
        for base in cls.__mro__
        if base.__module__.split(".")[0] in ("tensorflow", "keras")
    ]
    names = {name for base in bases for name in vars(base)}
    samples = (
        keras.Variable(1.0),
        keras.layers.Layer(),
        keras.optimizers.SGD(),
        keras.metrics.Mean(),
        tf.Module(),
        tf.Variable(1.0),
    )
    for sample in samples:
        if type(sample) in bases:
            names |= set(vars(sample))
    return {n for n in names if n[:1] == "_" and n[:2] != "__"}


def is_written(value):
    return callable(value) or isinstance(
        value, (property, classmethod, staticmethod)
    )


def test_classes_override_no_private_name():
    found = {}
    for cls in classes():
        others = names_of_others(cls)
        own = {name for name, value in vars(cls).items() if is_written(value)}
        if others:
            code = inspect.getsource(cls)
            own |= {n for n in others if re.search(rf"self\.{n}\b", code)}
        if own & others:
            found[cls.__qualname__] = own & others
    assert not found
