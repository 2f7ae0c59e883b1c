"""Models with every kind of state, their data, and comparisons of states."""

import keras
import numpy as np
import tensorflow as tf

import lodestar

BATCH = 8
NAMES = ["ada", "bob", "cy", "dee"]


@keras.saving.register_keras_serializable("persistence")
class Own(keras.optimizers.Optimizer):
    """An optimizer without a fused update, whose slot starts with 0.5."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            constant = keras.initializers.Constant(0.5)
            self.scales = self.add_optimizer_variables(
                variables, "scale", initializer=constant
            )

    def update_step(self, gradient, variable, learning_rate):
        scale = self.scales[self._get_variable_index(variable)]
        self.assign_add(scale, keras.ops.square(gradient))
        rate = keras.ops.cast(learning_rate, variable.dtype)
        step = keras.ops.cast(self.iterations + 1, variable.dtype)
        self.assign_sub(variable, rate * gradient / (scale * step))


wrap = lodestar.optimizers.wrap
OPTIMIZERS = {
    "adam": lambda: wrap(keras.optimizers.Adam(0.05)),
    "adagrad": lambda: wrap(keras.optimizers.Adagrad(0.1)),
    "ftrl": lambda: wrap(keras.optimizers.Ftrl(0.1)),
    "nadam": lambda: wrap(keras.optimizers.Nadam(0.05)),
    "replayed": lambda: wrap(Own(0.05)),
    "schedule": lambda: wrap(
        keras.optimizers.RMSprop(
            keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.7)
        )
    ),
    "loss_scale": lambda: lodestar.optimizers.LossScaleOptimizer(
        wrap("adam"), initial_scale=2.0, dynamic_growth_steps=3
    ),
    "accumulation": lambda: wrap(
        keras.optimizers.Adagrad(0.1, gradient_accumulation_steps=3)
    ),
}


def make_tables(num_shards=None):
    """Returns two tables that differ in every option."""
    return [
        lodestar.EmbeddingVariable(
            4,
            name="counted",
            embeddings_initializer="normal",
            seed=(3, 11),
            num_shards=num_shards,
            admission=lodestar.MinCount(2),
            default_row=lodestar.SharedRows(3),
        ),
        lodestar.EmbeddingVariable(
            2,
            name="capped",
            num_shards=num_shards,
            admission=lodestar.CountingBloom(2, 0.01, 1000),
            eviction=[lodestar.MaxRows(9, "lfu"), lodestar.MaxAge(5)],
        ),
    ]


def layers(num_shards=None):
    """Returns layers over each table, one called twice, and one of strings."""
    ids = keras.Input((3,), dtype="int64", name="ids")
    names = keras.Input((2,), dtype="string", name="names")
    counted, capped = make_tables(num_shards)
    first = lodestar.layers.DynamicEmbedding(table=counted, combiner="sum")
    again = lodestar.layers.DynamicEmbedding(
        table=counted, combiner="mean", salt="again"
    )
    second = lodestar.layers.DynamicEmbedding(table=capped, combiner="max")
    keys = lodestar.layers.IdLookup(vocabulary=NAMES, name="keys")
    named = lodestar.layers.DynamicEmbedding(
        1,
        combiner="mean",
        optimizer=keras.optimizers.Nadam(0.05),
        name="named",
    )
    x = keras.layers.Concatenate()(
        [first(ids), again(ids), second(ids), named(keys(names))]
    )
    return keras.Model({"ids": ids, "names": names}, _head(x))


def collection(num_shards=None):
    """Returns the same tables in one layer."""
    ids = keras.Input((3,), dtype="int64", name="ids")
    names = keras.Input((2,), dtype="string", name="names")
    counted, capped = make_tables(num_shards)
    layer = lodestar.layers.EmbeddingCollection(
        {
            "a": lodestar.Feature(counted, combiner="sum"),
            "b": lodestar.Feature(capped, combiner="mean", salt="b"),
            "c": lodestar.Feature(counted, combiner="max", salt="c"),
        }
    )
    rows = layer({"a": ids, "b": ids, "c": names})
    x = keras.layers.Concatenate()(list(rows.values()))
    return keras.Model({"ids": ids, "names": names}, _head(x))


def _head(x):
    x = keras.layers.Dense(3, "tanh", kernel_initializer="ones")(x)
    return keras.layers.Dense(1, kernel_initializer="ones")(x)


MODELS = {"layers": layers, "collection": collection}


def make(model, optimizer, num_shards=None):
    """Returns a compiled model whose optimizer is built."""
    keras.utils.set_random_seed(1)
    model = MODELS[model](num_shards)
    model.compile(OPTIMIZERS[optimizer](), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def dataset():
    """Returns shuffled batches in which some ids are frequent, and some occur once."""
    tf.random.set_seed(1)  # the shuffle depends on it
    rng = np.random.default_rng(7)
    known = rng.integers(-(2**63), 2**63 - 1, 60)
    ids = known[np.minimum(rng.zipf(1.3, (64 * BATCH, 3)) - 1, 59)]
    names = rng.choice([*NAMES, "eve", "fay"], (64 * BATCH, 2))
    label = rng.normal(size=(64 * BATCH, 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(
        ({"ids": ids, "names": names.astype(bytes)}, label)
    )
    return data.shuffle(50, seed=3).batch(BATCH)


def train(model, iterator, steps):
    for _ in range(steps):
        model.train_on_batch(*next(iterator))


def tables(trackable):
    """Returns all tables below `trackable`, including the optimizer's, in order."""
    return sorted(
        (
            child
            for child in tf.train.TrackableView(trackable).descendants()
            if isinstance(child, lodestar.EmbeddingVariable)
        ),
        key=lambda table: table.name,
    )


def table_state(table):
    found = {k: np.asarray(v) for k, v in table._export_all().items()}
    # Strings are compared by their bytes, not by address.
    return {
        k: v.astype(bytes) if v.dtype.kind == "O" else v
        for k, v in found.items()
    }


def state(model):
    """Returns all state of a model that training changes, by name."""
    found = {}
    for table in tables(model):
        for name, value in table_state(table).items():
            found[f"{table.name}/{name}"] = value
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            found[f"{layer.name}/weights"] = np.concatenate(
                [w.ravel() for w in layer.get_weights()]
            )
    for place, variable in enumerate(model.optimizer.variables):
        found[f"optimizer/{place}"] = variable.numpy()
    iterations = model.optimizer.iterations
    found["iterations"] = keras.ops.convert_to_numpy(iterations)
    return found


def assert_equal(found, wanted):
    """Checks that both have the same names and are bitwise equal."""
    # Keras counts layer names up within a process.
    for (name, value), (other, want) in zip(
        found.items(), wanted.items(), strict=True
    ):
        assert name.split("/")[1:] == other.split("/")[1:]
        assert value.dtype == want.dtype and value.shape == want.shape, name
        assert value.tobytes() == want.tobytes(), name
