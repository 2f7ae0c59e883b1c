"""Training equals the Keras optimizer on a dense matrix of all rows."""

import dense_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

SGD = keras.optimizers.SGD
Adagrad = keras.optimizers.Adagrad
Adam = keras.optimizers.Adam
Ftrl = keras.optimizers.Ftrl
RMSprop = keras.optimizers.RMSprop
wrap = lodestar.optimizers.wrap

# Optimizers that leave a row without a gradient unchanged.
ROW_WISE = {
    "sgd": lambda: SGD(0.1),
    "adagrad": lambda: Adagrad(0.1),
    "adagrad_epsilon": lambda: Adagrad(
        0.1, initial_accumulator_value=0.01, epsilon=1e-3
    ),
    "clipnorm": lambda: SGD(0.1, clipnorm=0.05),
    "clipvalue": lambda: Adagrad(0.1, clipvalue=0.01),
    "global_clipnorm": lambda: SGD(0.1, global_clipnorm=0.05),
    "global_clipnorm_unreached": lambda: SGD(0.1, global_clipnorm=1e3),
    "loss_scale": lambda: SGD(0.1, loss_scale_factor=64.0),
    "loss_scale_global_clipnorm": lambda: SGD(
        0.1, loss_scale_factor=64.0, global_clipnorm=0.05
    ),
    "schedule": lambda: SGD(
        keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)
    ),
}
# Optimizers that change every row in each step: equal if every row occurs.
ALL_ROWS = {
    "momentum": lambda: SGD(0.1, momentum=0.9),
    "nesterov": lambda: SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: Adam(0.05),
    "adam_betas": lambda: Adam(0.05, beta_1=0.5, beta_2=0.9, epsilon=1e-3),
    "adam_schedule": lambda: Adam(
        keras.optimizers.schedules.InverseTimeDecay(0.05, 1, 0.5)
    ),
    "adamw": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1),
    "ftrl": lambda: Ftrl(0.1),
    "ftrl_all": lambda: Ftrl(
        0.1,
        learning_rate_power=-0.6,
        initial_accumulator_value=0.2,
        l1_regularization_strength=1e-3,
        l2_regularization_strength=1e-2,
        l2_shrinkage_regularization_strength=1e-2,
        beta=0.1,
    ),
    "adam_amsgrad": lambda: Adam(0.05, beta_2=0.5, amsgrad=True),
    "rmsprop": lambda: RMSprop(0.01),
    "rmsprop_rho": lambda: RMSprop(0.01, rho=0.5, epsilon=1e-3),
    "rmsprop_momentum": lambda: RMSprop(0.01, momentum=0.9),
    "rmsprop_centered": lambda: RMSprop(0.01, centered=True),
    "rmsprop_momentum_centered": lambda: RMSprop(
        0.01, momentum=0.5, centered=True
    ),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0, rho=0.9, epsilon=1e-4),
    "adamax": lambda: keras.optimizers.Adamax(0.05, beta_2=0.5),
    "nadam": lambda: keras.optimizers.Nadam(0.05),
    "nadam_betas": lambda: keras.optimizers.Nadam(
        0.05, beta_1=0.5, beta_2=0.7, weight_decay=0.1
    ),
    "lion": lambda: keras.optimizers.Lion(0.01, weight_decay=0.1),
    "adamw_clipnorm": lambda: keras.optimizers.AdamW(0.05, clipnorm=0.05),
    "weight_decay": lambda: SGD(0.1, weight_decay=0.05),
    "weight_decay_adam": lambda: Adam(0.05, weight_decay=0.05),
    "weight_decay_momentum": lambda: SGD(
        0.1, momentum=0.9, weight_decay=0.05, clipnorm=0.1
    ),
}


FIT = ["adagrad", "adam", "global_clipnorm"]
# Graphs are slower to trace, and cover more.
EAGER = ["sgd", "adam", "nadam", "global_clipnorm", "loss_scale"]


@pytest.mark.parametrize(
    "name, graph",
    # `fit` below runs graphs of these.
    [(name, True) for name in {**ROW_WISE, **ALL_ROWS} if name not in FIT]
    + [(name, False) for name in EAGER],
)
def test_custom_loop_equals_dense_matrix(name, graph):
    make = {**ROW_WISE, **ALL_ROWS}[name]
    data = reference.batches(all_rows=name in ALL_ROWS)
    dynamic, dense = reference.models()
    reference.train(dynamic, wrap(make()), data, graph)
    reference.train(dense, make(), data, graph)
    reference.assert_same(dynamic, dense)


@pytest.mark.parametrize(
    "name, eager", [*((name, False) for name in FIT), ("adam", True)]
)
def test_fit_equals_dense_matrix(name, eager):
    make = {**ROW_WISE, **ALL_ROWS}[name]
    dynamic, dense = reference.fit_both(wrap(make()), make(), eager)
    reference.assert_same(dynamic, dense)
    assert int(dynamic.optimizer.iterations) == 10
    assert int(dynamic.embed.table.step) == 10


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_own_clipping_equals_dense_matrix(graph):
    data = reference.batches()
    dynamic, dense = reference.models()
    reference.train(dynamic, wrap(SGD(0.1)), data, graph, clip=0.05)
    reference.train(dense, SGD(0.1), data, graph, clip=0.05)
    reference.assert_same(dynamic, dense)


def test_learning_rate_set_in_between():
    data = reference.batches()
    dynamic, dense = reference.models()
    for model, optimizer in ((dynamic, wrap(SGD(0.1))), (dense, SGD(0.1))):
        reference.train(model, optimizer, data)
        optimizer.learning_rate = 0.01
        assert float(optimizer.learning_rate) == pytest.approx(0.01)
        reference.train(model, optimizer, data)
    reference.assert_same(dynamic, dense)


def test_layer_optimizer_is_used_for_its_table_only():
    data = reference.batches()
    dynamic, dense = reference.models(optimizer=Adagrad(0.2))
    reference.train(dynamic, wrap(SGD(0.1)), data)

    # The same by hand: two optimizers over the dense model.
    table_optimizer, rest = Adagrad(0.2), SGD(0.1)

    class Both:
        def scale_loss(self, loss):
            return loss

        def apply_gradients(self, pairs):
            pairs = list(pairs)
            matrix = [p for p in pairs if p[1] is dense.embed.matrix]
            table_optimizer.apply_gradients(matrix)
            rest.apply_gradients([p for p in pairs if p[1] is not matrix[0][1]])

    reference.train(dense, Both(), data)
    reference.assert_same(dynamic, dense)
    assert dynamic.embed.table.export().optimizer == "adagrad"


def test_layer_optimizer_keeps_its_schedule_on_the_wrapper_steps():
    data = reference.batches(all_rows=True)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    dynamic, dense = reference.models(optimizer=Adam(schedule))
    frozen = SGD(0.0)
    reference.train(dynamic, wrap(frozen), data)
    before = [w.numpy() for w in dense.dense.weights]
    dense.dense.trainable = False
    reference.train(dense, Adam(schedule), data)
    np.testing.assert_allclose(
        reference.rows(dynamic), reference.rows(dense), 0, 1e-6
    )
    np.testing.assert_array_equal(before[0], dynamic.dense.weights[0].numpy())


def test_untouched_rows_stay_bitwise_with_adam():
    dynamic, _ = reference.models()
    optimizer = wrap(Adam(0.05))
    before = reference.rows(dynamic)
    data = [(p % 4, y) for p, y in reference.batches()]
    reference.train(dynamic, optimizer, data)
    np.testing.assert_array_equal(reference.rows(dynamic)[4:], before[4:])
    assert (reference.rows(dynamic)[:4] != before[:4]).all()


def test_only_embeddings_in_the_model():
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(1, combiner="sum")
    model = keras.Model(ids, layer(ids))
    model.compile(wrap("sgd"), "mse")
    model.fit(np.ones((8, 2), int), np.ones((8, 1)), batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 2
    assert int(layer.table.step) == 2
    assert int(tf.reduce_sum(layer.table.size())) == 1
