"""Tests of the arguments of a LiveModel's functions."""

import numpy as np
import pytest
import tensorflow as tf
from followed_models import Trainer

from lodestar.export.served_function import ServedFunction
from lodestar.serving import LiveModel


@pytest.mark.parametrize("consistency", ["call", "row"])
def test_the_only_input(tmp_path, consistency):
    trainer = Trainer(tmp_path)
    trainer.save()
    live = LiveModel(
        trainer.exported, trainer.snapshots, None, consistency=consistency
    )
    want = live(trainer.features)
    clicks = trainer.features["clicks"]
    for call in (live, tf.function(live)):
        got = call(clicks)
        np.testing.assert_array_equal(got["rows"], want["rows"])
    with pytest.raises(ValueError, match=r"got \['click'\]\. Did you mean 'cl"):
        live({"click": clicks})
    with pytest.raises(
        ValueError, match="'clicks' must be ragged int64 .*, got"
    ):
        live(clicks.to_tensor())


def test_a_model_that_tensorflow_loads_as_its_own(tmp_path):
    trainer = Trainer(tmp_path)
    loaded = tf.saved_model.load(str(trainer.exported))

    class Loaded(tf.Module):
        """Has a function as an attribute, as TensorFlow's own objects do."""

    plain = Loaded()
    vars(plain)["__call__"] = vars(loaded.serve)["__call__"]
    serve = ServedFunction.of(plain)
    assert serve(trainer.features["clicks"])["score"].shape == (32, 1)
