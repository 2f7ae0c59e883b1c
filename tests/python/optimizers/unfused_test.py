"""Tests of optimizers whose own update_step runs on the rows of a step."""

import dense_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import Count, Own, OwnVariables, unfused

import lodestar

K = keras.optimizers
Decay = keras.optimizers.schedules.ExponentialDecay
wrap = lodestar.optimizers.wrap


def table(ids=(1, 2, 3), name="t", **options):
    t = lodestar.EmbeddingVariable(2, name=name, **options)
    t.lookup(list(ids), training=True)
    return t


def slices(ids, value=1.0):
    return tf.IndexedSlices(
        tf.fill([len(ids), 2], value), tf.constant(ids, tf.int64)
    )


OPTIONS = {
    "plain": {},
    "schedule": {"learning_rate": Decay(0.2, 1, 0.5)},
    "callable": {"learning_rate": lambda: 0.05},
    "clipnorm": {"clipnorm": 0.05},
    "clipvalue": {"clipvalue": 0.01},
    "global_clipnorm": {"global_clipnorm": 0.05},
    "loss_scale": {"loss_scale_factor": 64.0},
    "weight_decay": {"weight_decay": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2, "weight_decay": 0.1},
}


@pytest.mark.parametrize(
    "name, graph, cls",
    [
        *((name, True, Own) for name in OPTIONS),
        ("plain", False, Own),
        ("accumulation", False, OwnVariables),
        ("plain", True, OwnVariables),
    ],
)
def test_equals_itself_on_a_dense_matrix(name, graph, cls):
    data = reference.batches(all_rows=True, count=6)
    dynamic, dense = reference.models()
    reference.train(dynamic, wrap(cls(**OPTIONS[name])), data, graph)
    reference.train(dense, cls(**OPTIONS[name]), data, graph)
    reference.assert_same(dynamic, dense)
    export = dynamic.embed.table.export()
    registered = keras.saving.get_registered_name(cls)
    assert export.optimizer == f"replay:{registered}"
    assert list(export.optimizer_slots) == ["moment", "scale"]


# Every fused rule but Nadam's, which multiplies over steps.
FUSED = {
    "sgd": (K.SGD, {}),
    "momentum": (K.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (K.SGD, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (K.Adagrad, {}),
    "adam": (K.Adam, {"learning_rate": Decay(0.1, 3, 0.5)}),
    "amsgrad": (K.Adam, {"amsgrad": True, "beta_2": 0.5}),
    "adamw": (K.AdamW, {"weight_decay": 0.1}),
    "rmsprop": (K.RMSprop, {}),
    "rmsprop_all": (K.RMSprop, {"momentum": 0.5, "centered": True}),
    "adadelta": (K.Adadelta, {}),
    "adamax": (K.Adamax, {}),
    "lion": (K.Lion, {}),
    "ftrl": (K.Ftrl, {"l1_regularization_strength": 0.01, "beta": 0.1}),
    "ftrl_power": (K.Ftrl, {"learning_rate_power": -0.6}),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_update_equals_the_replayed_one(name, rng):
    cls, options = FUSED[name]
    options = {"learning_rate": 0.05, **options}

    ids = np.arange(20)
    fused, replayed = table(ids), table(ids)
    optimizers = wrap(cls(**options)), wrap(unfused(cls)(**options))

    @tf.function(reduce_retracing=True)
    def step(gradient):
        for t, optimizer in zip((fused, replayed), optimizers, strict=True):
            optimizer.apply([gradient], [t])

    for _ in range(6):
        some = rng.integers(0, 20, rng.integers(0, 30))
        values = rng.normal(size=(len(some), 2)) * rng.choice([1e-3, 1.0, 30.0])
        step(
            tf.IndexedSlices(
                tf.constant(values, tf.float32), tf.constant(some, tf.int64)
            )
        )
    one, two = fused.export(), replayed.export()
    assert two.optimizer == "replay:Unfused" != one.optimizer
    assert list(one.slot_inits.items()) == list(two.slot_inits.items())
    pairs = [(one.rows, two.rows)] + [
        (values, two.optimizer_slots[slot])
        for slot, values in one.optimizer_slots.items()
    ]
    for ours, theirs in pairs:
        # Ftrl's values are differences of larger ones.
        largest = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-6 * largest)


def test_rows_without_a_gradient_stay_and_new_ones_are_initialized():
    t = table()
    optimizer = wrap(Own())
    before = t.lookup([3]).numpy()
    optimizer.apply([slices([1, 2, 1])], [t])
    np.testing.assert_array_equal(t.lookup([3]), before)
    t.lookup([4], training=True)
    slots = t.inspect([3, 4, 1]).optimizer_slots
    np.testing.assert_array_equal(slots["moment"][:2], np.zeros((2, 2)))
    np.testing.assert_array_equal(slots["scale"][:2], np.full((2, 2), 0.5))
    np.testing.assert_allclose(slots["moment"][2], [2.0, 2.0])  # summed
    assert t.export().slot_inits == {"moment": 0.0, "scale": 0.5}
    assert int(t.step) == int(optimizer.iterations) == 1


def test_is_traced_once_for_any_number_of_ids():
    t = table()
    traces = []
    optimizer = wrap(Count(during=lambda: traces.append(1)))
    spec = tf.IndexedSlicesSpec([None, 2], tf.float32, tf.int64)
    optimizer.build([t])
    traces.clear()

    @tf.function(input_signature=[spec])
    def step(gradient):
        optimizer.apply([gradient], [t])

    for ids in ([1], [1, 2, 3], [], [2, 2, 9]):
        step(slices(ids))
    assert len(traces) == 1
    np.testing.assert_array_equal(
        t.inspect([1, 2, 3]).optimizer_slots["count"][:, 0], [2, 2, 1]
    )
    assert int(t.step) == 4


@pytest.mark.parametrize("graph", [False, True])
def test_a_gradient_of_no_ids(graph):
    t = table()
    optimizer = wrap(unfused(K.RMSprop)(0.1))
    optimizer.build([t])
    before = t.lookup([1, 2, 3]).numpy()

    def step():
        optimizer.apply([slices([])], [t])

    (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1, 2, 3]), before)
    assert int(t.step) == 1


def test_gradients_without_a_row_are_dropped_and_counted():
    t = table()
    wrap(Count()).apply([slices([1, 8, 9])], [t])
    assert t.stats()["gradients_dropped"] == 2
    assert int(t.size()) == 3


def test_shared_rows_are_trained_by_the_sum():
    fused, replayed = (
        table(default_row=lodestar.SharedRows(2), name="s") for _ in range(2)
    )

    for _ in range(2):
        gradient = slices([1, 8, 9, 10, 8], 2.0)
        wrap(K.Adagrad(0.1)).apply([gradient], [fused])
        wrap(unfused(K.Adagrad)(0.1)).apply([gradient], [replayed])
    ids = [1, 2, 8, 9, 10]
    np.testing.assert_array_equal(fused.lookup(ids), replayed.lookup(ids))
    assert replayed.stats()["gradients_dropped"] == 0
    one, two = fused._export_all(), replayed._export_all()
    np.testing.assert_array_equal(one["shared_slots"], two["shared_slots"])


def test_hyperparameters_set_later_or_left_out_of_the_config_count():
    class Forgetful(Own):
        def get_config(self):
            return keras.optimizers.Optimizer.get_config(self)

    given, forgotten = table(), table()
    for t, inner in ((given, Own(beta=0.3)), (forgotten, Forgetful(beta=0.3))):
        optimizer = wrap(inner)
        for beta in (0.3, 0.6):
            inner.beta = beta
            optimizer.apply([slices([1])], [t])
    np.testing.assert_array_equal(given.lookup([1]), forgotten.lookup([1]))
    moment = given.inspect([1]).optimizer_slots["moment"].numpy()
    np.testing.assert_allclose(moment, [[0.8, 0.8]])  # (1 * 0.6 + 1) / 2


# Errors, by their cause.


class OneVariable(Own):
    def build(self, variables):
        super().build(variables)
        self.total = self.add_variable((), name="total")


class Factored(Own):
    def build(self, variables):
        super().build(variables)
        self.rows = [
            self.add_variable(v.shape[:-1], name="rows") for v in variables
        ]


class RawVariable(Own):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = [tf.Variable(0.0)]


class FiveSlots(Own):
    def build(self, variables):
        super().build(variables)
        self.add_optimizer_variables(variables, ["a", "b", "c"])


class RandomStart(Own):
    def build(self, variables):
        super().build(variables)
        self.add_optimizer_variables(
            variables, "noise", keras.initializers.RandomNormal()
        )


class CopyOfRows(Own):
    def build(self, variables):
        super().build(variables)
        for v in variables:
            self.add_variable_from_reference(v, "z", v.value)


class SizeOfVariable(Own):
    def build(self, variables):
        super().build(variables)
        self.sizes = [int(np.prod(v.shape)) for v in variables]


class NormOfAll(Own):
    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, gradient / tf.norm(gradient))


class OwnApply(Own):
    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)


class OwnArguments(K.Optimizer):
    def __init__(self, learning_rate, needed):
        super().__init__(learning_rate)


class OwnFromConfig(Own):
    @classmethod
    def from_config(cls, config, custom_objects=None):
        return OwnFromConfig(**config)


OwnLamb, OwnNadam = unfused(K.Lamb), unfused(K.Nadam)
REFUSED = {
    OneVariable: r"its slot `total` must have the shape .* got \(\)",
    Factored: r"its slot `rows` must have the shape .* got \(None,\)",
    RawVariable: r"its `seen` is a variable of shape \(\) in addition",
    FiveSlots: "5 slots, moment, scale, a, b, c, but a row has at most 4",
    RandomStart: "its slot `noise` must start with one number, .*RandomNormal",
    CopyOfRows: r"its build fails for a variable .*\(None, 2\)",
    SizeOfVariable: r"its build fails for a variable .*\(None, 2\)",
    NormOfAll: "its update_step updates a row depending on other rows",
    OwnApply: "overrides `apply` of Optimizer, which applies to variables",
    OwnArguments: r"cannot be copied with get_config .*__init__\(\) got an",
    OwnFromConfig: "its from_config does not return the class",
    OwnLamb: "scaled by the norm of the whole matrix",
    OwnNadam: r"its `_u_product` is a variable of shape \(\)",
}


@pytest.mark.parametrize(
    "cls, graph", [*((cls, False) for cls in REFUSED), (OneVariable, True)]
)
def test_optimizers_that_are_not_row_wise_are_refused_by_name(cls, graph):
    t = table()
    optimizer = wrap(cls(0.1, 1.0) if cls is OwnArguments else cls(0.1))

    def step():
        optimizer.apply([slices([1])], [t])

    before = t.lookup([1]).numpy()
    with pytest.raises(
        NotImplementedError,
        match=f"(?s){cls.__name__} has no row-wise update.*{REFUSED[cls]}",
    ):
        (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1]), before)
    assert t.export().optimizer == ""


def test_random_updates_are_accepted():
    class Noisy(Own):
        def update_step(self, gradient, variable, learning_rate):
            noise = tf.random.normal(tf.shape(gradient))
            self.assign_sub(variable, learning_rate * (gradient + noise))

    t = table()
    before = t.lookup([1]).numpy()
    wrap(Noisy()).apply([slices([1])], [t])
    assert (t.lookup([1]).numpy() != before).all()


def test_four_slots_and_names_given_twice():
    class Four(Own):
        def build(self, variables):
            super().build(variables)
            self.add_optimizer_variables(variables, ["scale", "scale"])

    t = table()
    wrap(Four()).apply([slices([1])], [t])
    assert list(t.export().optimizer_slots) == [
        "moment",
        "scale",
        "scale_1",
        "scale_2",
    ]


def test_a_wrong_shape_is_reported():
    class Short(Own):
        def update_step(self, gradient, variable, learning_rate):
            self.assign(variable, gradient[:, :1])

    t = table()
    with pytest.raises(
        ValueError,
        match=r"`t` must be assigned .*\(3, 2\), got \(3, 1\)",
    ):
        wrap(Short()).apply([slices([1])], [t])


@pytest.mark.parametrize("way", ["other class", "other slots"])
def test_slots_of_another_optimizer_are_an_error_that_names_both(way):
    t = table()
    former = wrap(Count())
    former.apply([slices([1])], [t])
    if way == "other class":
        other = Own()
        message = "of 'replay:tests>Own', but the update uses 'replay:Count'"
    else:

        class Other(Own):
            def build(self, variables):
                super().build(variables)
                self.add_optimizer_variables(variables, "third")

        Other.__name__ = "Count"
        other = Other()
        message = (
            r"slots \[moment, scale, third\] of 'replay:Count', but the "
            r"update uses \[count\]"
        )
    with pytest.warns(UserWarning, match=r"fresh slots .*\(replay:Count\)"):
        wrap(other).apply([slices([1])], [t])
    before = t.lookup([1]).numpy()
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        former.apply([slices([1])], [t])
    np.testing.assert_array_equal(t.lookup([1]), before)
