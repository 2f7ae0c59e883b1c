"""Tests of `wrap`: user-defined optimizers, and files that contain them."""

import subprocess
import sys

import keras
import numpy as np
import own_optimizers
import pytest
import tensorflow as tf

import lodestar

wrap = lodestar.optimizers.wrap


def model(optimizer, name="embed"):
    keras.utils.set_random_seed(1)
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum", name=name)
    ids = keras.Input((3,), dtype="int64")
    built = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    built.compile(optimizer, "mse")
    return built


DATA = np.arange(24).reshape(8, 3) % 11, np.ones((8, 1))


def test_it_is_the_same_object_of_a_subclass():
    own = own_optimizers.Own(0.25)
    wrapped = wrap(own)
    assert wrapped is own and isinstance(own, own_optimizers.Own)
    assert float(own.learning_rate) == 0.25
    assert wrap(wrapped) is wrapped and wrapped.nonfinite == "raise"
    assert wrap(wrapped, nonfinite="skip").nonfinite == "skip"
    assert wrap(wrapped).nonfinite == "skip"
    # One class per wrapped class, so that tf.functions are shared.
    assert type(wrap(own_optimizers.Own())) is type(wrapped)


def test_optimizers_of_keras_become_the_class_of_that_name():
    for given in ("adagrad", keras.optimizers.Adagrad()):
        assert type(wrap(given)) is lodestar.optimizers.Adagrad


def test_unsupported_optimizers():
    with pytest.raises(ValueError, match=r"lodestar.optimizers.wrap\(inner_"):
        wrap(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    with pytest.raises(ValueError, match="`nonfinite`='drop'"):
        wrap("sgd", nonfinite="drop")
    built = keras.optimizers.SGD()
    built.build([keras.Variable(1.0)])
    with pytest.raises(ValueError, match="already built"):
        wrap(built)


def test_an_optimizer_without_a_config_can_be_wrapped():
    rate = tf.Variable(0.5)
    optimizer = wrap(own_optimizers.Own(lambda: rate))
    built = model(optimizer)
    built.fit(*DATA, verbose=0)
    assert int(built.get_layer("embed").table.size()) == 11


PROGRAM = """\
import sys, keras, lodestar, numpy as np
model = keras.saving.load_model(sys.argv[1])
ids = np.arange(24).reshape(8, 3) % 11
model.fit(ids, np.ones((8, 1)), verbose=0)
print(type(model.optimizer).__name__, int(model.optimizer.iterations))
"""


@pytest.mark.parametrize("name", ["Lamb"])
def test_a_fresh_process_loads_it_from_a_keras_file(tmp_path, name):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        2, combiner="sum", optimizer="sgd", name="embed"
    )
    built = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    built.compile(wrap(getattr(keras.optimizers, name)(0.1)), "mse")
    built.fit(*DATA, verbose=0)
    built.save(tmp_path / "m.keras")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "m.keras")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == [name, "2"]
