"""Tests of saved state that does not match: messages name both sides."""

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

X = np.arange(24).reshape(8, 3)
Y = np.ones((8, 1))
wrap = lodestar.optimizers.wrap


def table(size=2, dim=2, name="t", **options):
    made = lodestar.EmbeddingVariable(dim, name=name, **options)
    made.lookup(np.arange(size), training=True)
    return made


def state(table):
    return {k: v.numpy() for k, v in table._export_all().items()}


def assert_as_it_was(table, before):
    for name, value in state(table).items():
        np.testing.assert_array_equal(value, before[name], name)


# Checkpoints.


def save(folder, **objects):
    return tf.train.Checkpoint(**objects).save(str(folder / "c"))


def restore(path, **objects):
    return tf.train.Checkpoint(**objects).restore(path)


def test_checkpoint_of_another_dim(tmp_path):
    path = save(tmp_path, t=table(dim=2))
    other = table(dim=3, name="other")
    before = state(other)
    message = (
        "saved table has dim 2, but <EmbeddingVariable 'other' output_dim=3"
    )
    with pytest.raises(ValueError, match=message):
        restore(path, t=other)
    assert_as_it_was(other, before)


def test_checkpoint_of_another_dtype(tmp_path):
    path = save(tmp_path, t=table())
    other = table(dtype=tf.float16)
    before = state(other)
    message = "t/.ATTRIBUTES/rows; expected dtype half .* original dtype float"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        restore(path, t=other)
    assert_as_it_was(other, before)


def test_checkpoint_of_an_id_table_of_another_dtype(tmp_path):
    path = save(tmp_path, t=lodestar.lookup.IdTable(["a"]))
    other = lodestar.lookup.IdTable([1])
    message = "t/.ATTRIBUTES/keys; expected dtype int64 .* dtype string"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        restore(path, t=other)
    assert int(other.size()) == 1


def test_checkpoint_of_another_kind_of_table(tmp_path):
    path = save(tmp_path, t=lodestar.lookup.IdTable(["a"]))
    other = table()
    before = state(other)
    with pytest.raises(tf.errors.NotFoundError, match="Key t/.ATTRIBUTES/ids"):
        restore(path, t=other).expect_partial()
    assert_as_it_was(other, before)


def train(table, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([0, 1], training=True))
    optimizer.apply([tape.gradient(loss, table)], [table])


@pytest.mark.parametrize("trained_before", [False, True])
def test_checkpoint_of_another_optimizer(trained_before, tmp_path):
    saved, other = table(), table(name="other")
    train(saved, wrap("adagrad"))
    path = save(tmp_path, t=saved)
    optimizer = wrap("adam")
    if trained_before:
        train(other, optimizer)
        before = state(other)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="('adagrad'.*'adam')|('adam'.*'adagrad')",
    ):
        restore(path, t=other)
        before = state(other)
        train(other, optimizer)
    if not trained_before:
        # The step's lookup counted an occurrence; its update did not.
        for name in ("rows", "optimizer_slots", "counters"):
            np.testing.assert_array_equal(state(other)[name], before[name])
    else:
        assert_as_it_was(other, before)


def test_a_table_that_the_checkpoint_has_not(tmp_path):
    path = save(tmp_path, a=table())
    other = table(4, name="other")
    before = state(other)
    for check in ("assert_consumed", "assert_existing_objects_matched"):
        status = restore(path, a=table(), b=other)
        with pytest.raises(AssertionError, match="<EmbeddingVariable 'other'"):
            getattr(status, check)()
    restore(path, a=table(), b=other).expect_partial()
    assert_as_it_was(other, before)


def test_a_table_that_only_the_checkpoint_has(tmp_path):
    path = save(tmp_path, a=table(), b=table(4))
    with pytest.raises(
        AssertionError, match=r"\(root\).b(.|\n)*b/.ATTRIBUTES/"
    ):
        restore(path, a=table()).assert_consumed()
    only = table(9)
    restore(path, a=only).assert_existing_objects_matched()
    assert int(only.size()) == 2


def test_more_rows_than_the_cap(tmp_path):
    path = save(tmp_path, t=table(4))
    capped = table(2, eviction=lodestar.MaxRows(3))
    before = state(capped)
    message = "makes 4 rows, but `max_rows` of the table is 3"
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        restore(path, t=capped)
    assert_as_it_was(capped, before)


WAITING = {
    "MinCount": (
        {"admission": lodestar.MinCount(2)},
        "no `admission`.* 2 ids that wait for admission, 0 counters",
    ),
    "CountingBloom": (
        {"admission": lodestar.CountingBloom(2, 0.01, 10)},
        "no `admission`.* ids that wait for admission, [1-9][0-9]* counters",
    ),
    "SharedRows": (
        {"default_row": lodestar.SharedRows(5)},
        "no `SharedRows`.* 5 shared rows",
    ),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("way", ["checkpoint", "weights"])
def test_state_without_a_place_is_named(name, way, tmp_path):
    options, message = WAITING[name]
    saved, plain = layer(**options), layer()
    with pytest.warns(UserWarning, match=message):
        transfer(way, saved, plain, tmp_path)


@pytest.mark.parametrize("way", ["checkpoint", "weights"])
def test_shared_rows_that_were_not_saved_stay(way, tmp_path):
    other = layer(default_row=lodestar.SharedRows(5))
    before = state(other.table)["shared_rows"]
    message = "has no shared rows: <EmbeddingVariable .* keeps its 5"
    with pytest.warns(UserWarning, match=message):
        transfer(way, layer(), other, tmp_path)
    np.testing.assert_array_equal(state(other.table)["shared_rows"], before)


@pytest.mark.filterwarnings("error::UserWarning:lodestar")
@pytest.mark.parametrize("name", ["plain", *WAITING])
@pytest.mark.parametrize("way", ["checkpoint", "weights"])
def test_no_warning_where_all_fits(name, way, tmp_path):
    options = {} if name == "plain" else WAITING[name][0]
    saved, other = layer(**options), layer(**options)
    transfer(way, saved, other, tmp_path)
    assert_as_it_was(other.table, state(saved.table))


def layer(**options):
    made = lodestar.layers.DynamicEmbedding(
        table=table(0, **options), combiner="sum", name="rows"
    )
    made(X[:1, :2], training=True)
    return made


def transfer(way, saved, other, folder):
    if way == "checkpoint":
        restore(save(folder, t=saved.table), t=other.table)
        return
    path = folder / "m.weights.h5"
    models = []
    for each in (saved, other):
        ids = keras.Input((3,), dtype="int64")
        models.append(keras.Model(ids, each(ids)))
    models[0].save_weights(path)
    models[1].load_weights(path)


# Keras's files.


def model(*embeddings):
    ids = keras.Input((3,), dtype="int64", name="ids")
    parts = [keras.layers.Rescaling(1.0)(e(ids)) for e in embeddings]
    total = [keras.ops.sum(part, -1, keepdims=True) for part in parts]
    out = keras.layers.Add()(total) if len(total) > 1 else total[0]
    return keras.Model(ids, out)


def embedding(size=2, dim=2, **options):
    return lodestar.layers.DynamicEmbedding(
        table=table(size, dim, **options), combiner="sum"
    )


class Pick(keras.layers.Layer):
    """A collection as a layer with one output."""

    def __init__(self, dims, **options):
        super().__init__()
        self.rows = lodestar.layers.EmbeddingCollection(
            {
                f"f{i}": lodestar.Feature(
                    table(i + 1, dim, name=f"t{i}", **options), combiner="sum"
                )
                for i, dim in enumerate(dims)
            }
        )
        self.tables = lambda: self.rows.tables

    def call(self, ids, training=None):
        rows = self.rows({f: ids for f in self.features()}, training=training)
        return tf.concat(list(rows.values()), -1)

    def features(self):
        return [f"f{i}" for i in range(len(self.tables()))]

    def compute_output_spec(self, ids, training=None):
        return keras.KerasTensor(
            (None, sum(t.output_dim for t in self.tables()))
        )


def saved_weights(folder, saved):
    path = folder / "m.weights.h5"
    saved.save_weights(path)
    return path


def test_weights_of_another_dim(tmp_path):
    path = saved_weights(tmp_path, model(embedding(dim=2)))
    other = embedding(dim=3)
    before = state(other.table)
    message = "saved table has dim 2, but <EmbeddingVariable 't' output_dim=3"
    with pytest.raises(ValueError, match=message):
        model(other).load_weights(path)
    with pytest.warns(UserWarning, match=message):
        model(other).load_weights(path, skip_mismatch=True)
    assert_as_it_was(other.table, before)


def test_weights_of_another_dtype(tmp_path):
    path = saved_weights(tmp_path, model(embedding()))
    message = "rows of float32, but <EmbeddingVariable 't' output_dim=2 dtype=bfloat16"
    with pytest.raises(ValueError, match=message):
        model(embedding(dtype=tf.bfloat16)).load_weights(path)


def test_weights_without_the_table(tmp_path):
    path = saved_weights(tmp_path, model(embedding()))
    one, other = embedding(5), embedding(3, name="other")
    message = "no saved table for <EmbeddingVariable 'other'"
    with pytest.raises(ValueError, match=message):
        model(one, other).load_weights(path)
    one = embedding(5)
    with pytest.warns(UserWarning, match=message):
        model(one, other).load_weights(path, skip_mismatch=True)
    assert int(one.table.size()) == 2 and int(other.table.size()) == 3


def test_collection_takes_all_tables_or_none(tmp_path):
    path = saved_weights(tmp_path, model(Pick([2, 3])))
    for dims, message in (
        (
            [2, 4],
            "saved table has dim 3, but <EmbeddingVariable 't1' output_dim=4",
        ),
        ([2, 3, 2], "no saved table for <EmbeddingVariable 't2'"),
        ([2], "which has more than 1"),
    ):
        other = Pick(dims)
        other.tables()[0].insert_or_assign([77], [[1.0, 2.0]])
        before = [state(t) for t in other.tables()]
        with pytest.raises(ValueError, match=message):
            model(other).load_weights(path)
        with pytest.warns(UserWarning, match=message):
            model(other).load_weights(path, skip_mismatch=True)
        for t, was in zip(other.tables(), before):
            assert_as_it_was(t, was)


def test_damaged_header(tmp_path):
    path = saved_weights(tmp_path, model(embedding()))
    with h5py.File(path, "a") as file:
        found = []
        file.visit(lambda n: found.append(n) if "header" in n else None)
        file[found[0]][0] = 0
    other = embedding(5)
    with pytest.raises(ValueError, match="`header` cannot be read"):
        model(other).load_weights(path)
    assert int(other.table.size()) == 5


def test_weights_of_another_optimizer(tmp_path):
    first = model(embedding())
    first.compile(wrap("adagrad"), "mse")
    first.fit(X, Y, verbose=0)
    second = model(embedding())
    second.compile(wrap("adam"), "mse")
    second.load_weights(saved_weights(tmp_path, first))
    before = second.predict(X, verbose=0)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="the optimizer slots of 'adagrad', but the update uses 'adam'",
    ):
        second.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(second.predict(X, verbose=0), before)


def accumulating(steps):
    made = model(embedding())
    made.compile(
        wrap(keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps)),
        "mse",
    )
    made.optimizer.build(made.trainable_variables)
    return made


def test_waiting_gradients_without_a_place_are_named(tmp_path):
    first = accumulating(2)
    first.train_on_batch(X, Y)
    path = saved_weights(tmp_path, first)
    for second, message in (
        (accumulating(None), "has them for 0 tables.*saved optimizer for 1"),
        (accumulating(3), None),
    ):
        if message is None:
            second.load_weights(path)
            sums = second.optimizer._gradient_sums.members[0].sums
            assert int(sums.size()) > 0
        else:
            with pytest.warns(UserWarning, match=message):
                second.load_weights(path)


@pytest.mark.parametrize(
    "saved, other, message",
    [
        (["a"], [1], "string keys, but .* of other is int64"),
        ([1], ["a"], "int64 keys, but .* of other is string"),
        (None, ["a"], "vocabulary is empty, but other already has 1 keys"),
    ],
)
def test_vocabularies(saved, other, message, tmp_path):
    def make(vocabulary, name):
        dtype = "string"
        if vocabulary is not None and isinstance(vocabulary[0], int):
            dtype = "int64"
        lookup = lodestar.layers.IdLookup(
            vocabulary=vocabulary, vocabulary_dtype=dtype, name=name
        )
        made = keras.Sequential([lookup])
        made.built = True
        return made, lookup

    first, _ = make(saved, "first")
    second, lookup = make(other, "other")
    before = lookup.get_vocabulary()
    path = saved_weights(tmp_path, first)
    with pytest.raises(ValueError, match=message):
        second.load_weights(path)
    assert lookup.get_vocabulary() == before


# SavedModels.


def test_saved_model_of_another_dim_or_dtype(tmp_path):
    module = tf.Module()
    module.t = table()
    tf.saved_model.save(module, str(tmp_path))
    for other, error, message in (
        (table(dim=3), ValueError, "has dim 2, but .* output_dim=3"),
        (
            table(dtype=tf.float16),
            tf.errors.InvalidArgumentError,
            "t/.ATTRIBUTES/rows; expected dtype half .* dtype float",
        ),
    ):
        module = tf.Module()
        module.t = other
        with pytest.raises(error, match=message):
            tf.train.Checkpoint(module).read(f"{tmp_path}/variables/variables")


def test_saved_model_called_with_another_dtype(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.t = table()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def find(self, ids):
            return self.t.lookup(ids)

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.find)
    loaded = tf.saved_model.load(str(tmp_path))
    serve = loaded.signatures["serving_default"]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="int64 tensor but is a float"
    ):
        serve(tf.constant([1.0]))
    rows = serve(tf.constant([1], tf.int64))["output_0"]
    np.testing.assert_array_equal(rows, module.t.lookup([1]))
