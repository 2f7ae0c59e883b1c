"""Tests of optimizers with a row-wise update, and of errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops
from lodestar.optimizers import row_optimizers

wrap = lodestar.optimizers.wrap

# Every rule that the op has.
OPTIMIZERS = [
    keras.optimizers.SGD(),
    keras.optimizers.SGD(momentum=0.9),
    keras.optimizers.Adagrad(),
    keras.optimizers.Adam(),
    keras.optimizers.Adam(amsgrad=True),
    keras.optimizers.RMSprop(),
    keras.optimizers.RMSprop(momentum=0.9),
    keras.optimizers.RMSprop(centered=True),
    keras.optimizers.RMSprop(momentum=0.9, centered=True),
    keras.optimizers.Adadelta(),
    keras.optimizers.Adamax(),
    keras.optimizers.Nadam(),
    keras.optimizers.Lion(),
    keras.optimizers.Ftrl(),
]


class SameStep(keras.optimizers.Adagrad):
    """A subclass that changes no formula."""

    def __init__(self, **kwargs):
        super().__init__(0.5, **kwargs)
        self.remark = "mine"

    @property
    def learning_rate(self):
        return 0.25

    def get_config(self):
        return {**super().get_config(), "remark": self.remark}


def instance_with_other_step():
    optimizer = keras.optimizers.SGD()
    optimizer.update_step = lambda *args: None
    return optimizer


def table(name="t"):
    t = lodestar.EmbeddingVariable(2, name=name)
    t.lookup([1, 2], training=True)
    return t


def slices(ids):
    return tf.IndexedSlices(tf.ones([len(ids), 2]), tf.constant(ids, tf.int64))


ALTERNATIVE = r"DynamicEmbedding\(..., optimizer='adagrad'\)"
REFUSED = {
    "adafactor": (
        lambda: "adafactor",
        f"keras.optimizers.Adafactor has no row-wise .*factored.*{ALTERNATIVE}",
    ),
    "muon": (
        lambda: keras.optimizers.Muon(1e-3),
        f"keras.optimizers.Muon has no .*orthogonalizes.*{ALTERNATIVE}",
    ),
    "lamb": (
        keras.optimizers.Lamb,
        "keras.optimizers.Lamb .*optimizers are Adadelta, Adagrad, Adam, AdamW, "
        "Adamax, Ftrl, Lion, Nadam, RMSprop, RowWiseAdagrad, SGD",
    ),
    "instance": (
        instance_with_other_step,
        "keras.optimizers.SGD .*overrides `update_step` of SGD",
    ),
    "use_ema": (
        lambda: keras.optimizers.SGD(use_ema=True),
        "keras.optimizers.SGD has use_ema=True.*Set use_ema=False",
    ),
}
for _clip in ("clipnorm", "clipvalue", "global_clipnorm"):
    REFUSED[f"accumulation_{_clip}"] = (
        lambda clip=_clip: keras.optimizers.SGD(
            gradient_accumulation_steps=4, **{clip: 1.5}
        ),
        f"gradient_accumulation_steps=4 and {_clip}=1.5.*without clipping",
    )


@pytest.mark.parametrize(
    "name, graph", [(name, i % 2 == 0) for i, name in enumerate(REFUSED)]
)
def test_is_refused_by_name_while_tracing(name, graph):
    make, message = REFUSED[name]
    t = table()
    optimizer = wrap(make())

    def step():
        optimizer.apply([slices([1])], [t])

    before = t.lookup([1]).numpy()
    with pytest.raises(NotImplementedError, match=message):
        (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1]), before)


def test_is_refused_for_a_table_in_a_later_step():
    optimizer = wrap(keras.optimizers.Lamb())
    dense = keras.Variable([1.0, 2.0])
    optimizer.apply([tf.ones([2])], [dense])
    with pytest.raises(NotImplementedError, match="Lamb"):
        optimizer.apply([tf.ones([2]), slices([1])], [dense, table()])


@pytest.mark.parametrize("inner", ["adafactor", keras.optimizers.Lamb()])
def test_serves_a_model_without_tables(inner):
    variable = keras.Variable([1.0, 2.0])
    wrap(inner).apply([tf.ones([2])], [variable])
    assert (variable.numpy() != [1.0, 2.0]).all()


def test_works_with_an_optimizer_of_the_layer():
    layer = lodestar.layers.DynamicEmbedding(2, optimizer="adagrad")
    layer.table.lookup([1], training=True)
    before = layer.table.lookup([1]).numpy()
    dense = keras.Variable([1.0, 2.0])
    wrap(keras.optimizers.Lamb()).apply(
        [slices([1]), tf.ones([2])], [layer.table, dense]
    )
    assert (layer.table.lookup([1]).numpy() < before).all()
    assert layer.table.export().optimizer == "adagrad"


@pytest.mark.parametrize(
    "optimizer, message",
    [
        (
            keras.optimizers.Lamb(),
            "keras.optimizers.Lamb has no row-wise update",
        ),
        (
            {"class_name": "Adafactor", "config": {"learning_rate": 0.1}},
            "keras.optimizers.Adafactor has no row-wise update",
        ),
        (
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
            r"Use lodestar.optimizers.LossScaleOptimizer\(",
        ),
        (keras.optimizers.SGD(clipnorm=1.5), "a table, has clipnorm=1.5"),
        (
            keras.optimizers.SGD(gradient_accumulation_steps=4),
            "has gradient_accumulation_steps=4. Set it on the model's",
        ),
        (keras.optimizers.SGD(loss_scale_factor=2.0), "loss_scale_factor=2.0"),
        (keras.optimizers.SGD(use_ema=True), "use_ema=True"),
    ],
)
def test_optimizer_of_a_layer_is_refused(optimizer, message):
    with pytest.raises((NotImplementedError, ValueError), match=message):
        lodestar.layers.DynamicEmbedding(2, optimizer=optimizer)


@pytest.mark.parametrize(
    "optimizer",
    [
        "lion",
        {"class_name": "Lion", "config": {"learning_rate": 0.001}},
        keras.optimizers.Lion(0.001),
    ],
)
def test_optimizer_of_a_layer_in_every_form(optimizer):
    layer = lodestar.layers.DynamicEmbedding(2, optimizer=optimizer)
    layer.table.lookup([1], training=True)
    before = layer.table.lookup([1]).numpy()
    wrap(keras.optimizers.SGD(7.0)).apply([slices([1])], [layer.table])
    np.testing.assert_allclose(layer.table.lookup([1]), before - 0.001, 0, 1e-6)


def test_subclass_that_changes_no_formula_is_its_base():
    one, two = table(), table()
    np.testing.assert_array_equal(one.lookup([1, 2]), two.lookup([1, 2]))
    wrap(SameStep()).apply([slices([1, 2])], [one])
    wrap(keras.optimizers.Adagrad(0.25)).apply([slices([1, 2])], [two])
    np.testing.assert_array_equal(one.lookup([1, 2]), two.lookup([1, 2]))
    assert one.export().optimizer == "adagrad"


@pytest.mark.parametrize(
    "inner, slots",
    [
        ("adam", ["momentum", "velocity"]),
        (
            keras.optimizers.Adam(amsgrad=True),
            ["momentum", "velocity", "velocity_hat"],
        ),
        (
            keras.optimizers.RMSprop(momentum=0.5, centered=True),
            ["velocity", "momentum", "average_gradient"],
        ),
        ("adadelta", ["accumulated_grad", "accumulated_delta_var"]),
        ("adamax", ["momentum", "norm"]),
        ("nadam", ["momentum", "velocity"]),
        ("lion", ["momentum"]),
        ("ftrl", ["accumulator", "linear"]),
        ("sgd", []),
    ],
)
def test_optimizer_slots_are_named_as_in_keras(inner, slots):
    t = table()
    wrap(inner).apply([slices([1])], [t])
    assert list(t.export().optimizer_slots) == slots


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda x: x.name)
def test_hyperparameters_have_the_ops_names_and_order(optimizer):
    rule = row_optimizers._RULES[type(optimizer)]
    step = row_optimizers.Step(*tf.unstack(tf.ones([3])))
    name, slot_inits, numbers = rule(optimizer, step)
    variable = table(name)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        gen_ops.lodestar_embedding_apply(
            handle=variable.resource_handle,
            ids=tf.constant([1], tf.int64),
            gradients=tf.zeros([1, 2]),
            hyperparameters=[],
            next_step=tf.constant(-2, tf.int64),
            optimizer=name,
            slot_inits=[float(init) for init in slot_inits],
        )
    names = ", ".join(["learning_rate", "weight_decay", *numbers])
    assert f"hyperparameters ({names}), got 0." in str(caught.value)
