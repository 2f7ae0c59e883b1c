"""Tests of optimizers that train tables: errors, config and state."""

import dense_reference as reference
import keras
import numpy as np
import own_optimizers
import pytest
import tensorflow as tf

import lodestar

wrap = lodestar.optimizers.wrap


def table(name="t", **options):
    t = lodestar.EmbeddingVariable(2, name=name, **options)
    t.lookup([1, 2], training=True)
    return t


def slices(ids, value=1.0):
    return tf.IndexedSlices(
        tf.fill([len(ids), 2], value),
        tf.constant(ids, tf.int64),
        tf.constant([-1, 2], tf.int32),
    )


def test_one_device_is_one_replica():
    with tf.distribute.OneDeviceStrategy("/CPU:0").scope():
        layer = lodestar.layers.DynamicEmbedding(2, name="t")
        model = keras.Sequential(
            [keras.Input((1,), dtype="int64"), layer, keras.layers.Flatten()]
        )
        model.compile(wrap("sgd"), loss="mse")
        ids = np.array([[1], [2]])
        model.fit(ids, np.zeros([2, 2], np.float32), verbose=0)
    assert int(layer.table.size()) == 2


def test_bad_arguments():
    with pytest.raises(ValueError, match="`nonfinite`='drop'"):
        wrap("sgd", nonfinite="drop")
    with pytest.raises(ValueError, match="not built"):
        wrap("sgd").apply([tf.constant(1.0)])
    kept = table()
    with pytest.raises(ValueError, match="No gradients provided"):
        wrap("sgd").apply([None], [kept])
    with pytest.raises(ValueError, match="1 gradients, but there are 2 var"):
        wrap("sgd").apply([slices([1])], [kept, keras.Variable(1.0)])


@pytest.mark.parametrize("clip", [{}, {"clipnorm": 1e6}])
def test_duplicate_ids_are_summed(clip):
    t = table()
    before = t.lookup([1, 2]).numpy()
    wrap(keras.optimizers.SGD(0.5, **clip)).apply([slices([1, 2, 1])], [t])
    np.testing.assert_allclose(
        t.lookup([1, 2]), before - [[1.0], [0.5]], rtol=1e-6
    )


def test_gradient_of_a_removed_row_is_dropped_and_counted():
    t = table()
    t.remove([2])
    wrap("sgd").apply([slices([1, 2])], [t])
    assert int(t.size()) == 1
    assert t.stats()["gradients_dropped"] == 1


@pytest.mark.parametrize(
    "inner, graph",
    [("sgd", False), (own_optimizers.Own, False), (own_optimizers.Own, True)],
)
@pytest.mark.parametrize("nonfinite", ["raise", "skip", "pass"])
def test_nonfinite_gradients(nonfinite, inner, graph):
    t, other = table(), table(name="other")
    before = t.lookup([1, 2]).numpy()
    gradient = tf.IndexedSlices(
        tf.constant([[1.0, np.nan], [1.0, 1.0]]), tf.constant([1, 2], tf.int64)
    )
    optimizer = wrap(inner() if callable(inner) else inner, nonfinite=nonfinite)
    optimizer.build([other, t])

    def step():
        optimizer.apply([slices([1]), gradient], [other, t])

    if graph:
        step = tf.function(step)
    if nonfinite == "raise":
        others = other.lookup([1]).numpy()
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="the gradient of id 1 is not"
        ):
            step()
        np.testing.assert_array_equal(t.lookup([1, 2]), before)
        np.testing.assert_array_equal(other.lookup([1]), others)
        assert int(optimizer.iterations) == int(t.step) == 0
        return
    step()
    after = t.lookup([1, 2]).numpy()
    assert (after[1] != before[1]).all()
    if nonfinite == "skip":
        np.testing.assert_array_equal(after[0], before[0])
        assert t.stats()["nonfinite_gradients"] == 1
    else:
        assert np.isnan(after[0, 1])


def content(tables):
    return [
        [np.asarray(tensor).tolist() for tensor in t._export_all().values()]
        for t in tables
    ]


@pytest.mark.parametrize(
    "inner, graph",
    [("nadam", False), ("adam", True), (own_optimizers.Own, True)],
)
def test_a_sum_that_is_not_finite_leaves_all_alone(graph, inner):
    tables = [table("first"), table("second")]
    dense = keras.Variable([1.0, 2.0])
    variables = [tables[0], dense, tables[1]]
    optimizer = wrap(inner() if callable(inner) else inner)
    optimizer.build(variables)

    @(tf.function if graph else lambda step: step)
    def step(value):
        gradients = [slices([1]), tf.ones([2]), slices([2, 1, 2], value)]
        optimizer.apply(gradients, variables)

    step(tf.constant(1.0))
    before = content(tables), [v.numpy().tolist() for v in optimizer.variables]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="table 'second': the gradient of id 2 is not finite; no row",
    ):
        step(tf.constant(3e38))
    assert before == (
        content(tables),
        [v.numpy().tolist() for v in optimizer.variables],
    )
    # Large, but not too large.
    step(tf.constant(1.5e38))
    assert [int(t.step) for t in tables] == [2, 2]


def test_sums_are_checked():
    tables = [table("first"), table("second")]
    ids, values = tf.constant([1, 1], tf.int64), [[3e38, 1.0], [-3e38, 1.0]]
    gradient = tf.IndexedSlices(tf.constant(values), ids, [-1, 2])
    before = tables[1].lookup([1]).numpy()
    wrap(keras.optimizers.SGD(1.0)).apply(
        [slices([1]), gradient], [t for t in tables]
    )
    np.testing.assert_allclose(tables[1].lookup([1]), before - [[0.0, 2.0]])


@pytest.mark.parametrize(
    "inner, others", [("sgd", 0), ("sgd", 1), (own_optimizers.Own, 1)]
)
@pytest.mark.parametrize("nonfinite", ["raise", "skip", "pass"])
def test_sums_of_shared_rows(nonfinite, others, inner):
    t = table("t", default_row=lodestar.SharedRows(1))
    tables = [t] + [table(f"other_{i}") for i in range(others)]
    optimizer = wrap(inner() if callable(inner) else inner, nonfinite=nonfinite)
    hooks = [t for t in tables]
    optimizer.apply([slices([1])] * len(hooks), hooks)
    before = content(tables)
    gradients = [slices([1, 8, 9], 2e38)] + [slices([1])] * others
    if nonfinite == "raise":
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="table 't': the gradients of ids without a row have a sum "
            "that is not finite for shared row 0",
        ):
            optimizer.apply(gradients, hooks)
        assert content(tables) == before
        return
    optimizer.apply(gradients, hooks)
    shared = t._export_all()["shared_rows"].numpy()
    assert np.isfinite(shared).all() == (nonfinite == "skip")
    assert t.stats()["nonfinite_gradients"] == (2 if nonfinite == "skip" else 0)


@pytest.mark.parametrize(
    "inner, options",
    [
        (keras.optimizers.Adam, {}),
        (lambda: keras.optimizers.Adam(0.1, global_clipnorm=1.0), {}),
        (
            lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
            {},
        ),
        (own_optimizers.Own, {}),
        (keras.optimizers.Adam, {"default_row": lodestar.SharedRows(2)}),
        (keras.optimizers.Adam, {"devices": ["/CPU:0", "/CPU:0"]}),
    ],
    ids=["plain", "clipped", "accumulated", "replayed", "shared", "parts"],
)
def test_nan_labels_are_named(inner, options):
    tables = 1 if options else 2
    ids = keras.Input((2,), dtype="int64")
    admission = lodestar.MinCount(9) if "default_row" in options else None
    features = {
        name: lodestar.Feature(
            lodestar.EmbeddingVariable(
                2, name=name, admission=admission, **options
            ),
            combiner="sum",
        )
        for name in ["a", "b"][:tables]
    }
    rows = lodestar.layers.EmbeddingCollection(features)(
        dict.fromkeys(features, ids)
    )
    total = sum(rows.values()) if tables == 2 else rows["a"]
    model = keras.Model(ids, keras.layers.Dense(1)(total))
    model.compile(wrap(inner()), "mse")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="not finite; no row( and no weight)? was changed. The loss or a "
        "gradient .* NaN "
        'in labels.* learning rate.*nonfinite="skip"',
    ):
        model.fit(np.array([[1, 2]]), np.array([[np.nan]]), verbose=0)


def test_other_optimizer_of_one_table_leaves_all_alone():
    one, two = table("one"), table("two")
    former = wrap("adagrad")
    former.apply([slices([1])], [two])
    with pytest.warns(UserWarning, match="fresh slots"):
        wrap("sgd").apply([slices([1])], [two])
    before = one.lookup([1]).numpy()
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="table 'two': the table has the optimizer slots of 'sgd', "
        "but the update uses 'adagrad'. .*optimizer_slots=\"reset\"",
    ):
        former.apply([slices([1]), slices([1])], [one, two])
    np.testing.assert_array_equal(one.lookup([1]), before)


def test_step_follows_iterations():
    a, b = table("a"), table("b")
    dense = keras.Variable(1.0)
    optimizer = wrap(keras.optimizers.Adam())
    variables = [a, dense, b]
    optimizer.build(variables)
    optimizer.iterations.assign(10)
    optimizer.apply([slices([1]), tf.constant(1.0), slices([1])], variables)
    assert int(a.step) == int(b.step) == int(optimizer.iterations) == 11
    optimizer.apply([slices([1]), None, None], variables)
    assert int(a.step) == int(optimizer.iterations) == 12
    # Frequencies count once per step, however many lookups there are.
    a.lookup([1, 1], training=True)
    a.lookup([1], training=True)
    assert int(a.frequency(1)) == 2


def test_shared_table_in_two_layers():
    t = lodestar.EmbeddingVariable(
        2, name="shared", embeddings_initializer="ones"
    )
    one = lodestar.layers.DynamicEmbedding(table=t)
    two = lodestar.layers.DynamicEmbedding(table=t, combiner="sum")
    assert one.trainable_variables == two.trainable_variables == [t]
    ids = keras.Input((2,), dtype="int64")
    out = keras.layers.Add()(
        [
            keras.layers.Flatten()(one(ids)),
            keras.layers.Concatenate()([two(ids)] * 2),
        ]
    )
    model = keras.Model(ids, out)
    assert model.trainable_variables == [t]
    model.compile(wrap(keras.optimizers.SGD(1.0)), "mse")
    model.fit(np.array([[1, 2]]), np.zeros((1, 4)), verbose=0)
    # Each output is 1 + 2 = 3; d loss / d output = 2 * 3 / 4; an id contributes
    # to its own output and to every sum once.
    np.testing.assert_allclose(t.lookup([1, 2]), np.full((2, 2), 1 - 4.5))


@pytest.mark.parametrize("exclude", [{"var_list": True}, {"var_names": ["t"]}])
def test_exclude_from_weight_decay(exclude):
    decayed, kept = table("u"), table("t")
    if exclude.get("var_list"):
        exclude = {"var_list": [kept]}
    optimizer = wrap(keras.optimizers.SGD(0.1, weight_decay=0.5))
    optimizer.exclude_from_weight_decay(**exclude)
    before = [t.lookup([1]).numpy() for t in (decayed, kept)]
    optimizer.apply([slices([1]), slices([1])], [decayed, kept])
    np.testing.assert_allclose(
        decayed.lookup([1]), before[0] * (1 - 0.5 * 0.1) - 0.1, 1e-6
    )
    np.testing.assert_allclose(kept.lookup([1]), before[1] - 0.1, 1e-6)


def test_variables_are_the_inner_ones():
    dynamic, _ = reference.models()
    optimizer = wrap("adam")
    optimizer.build(dynamic.trainable_variables)
    dense = dynamic.dense.trainable_variables
    # Iteration, learning rate, and two for each dense variable.
    assert len(optimizer.variables) == 2 + 2 * len(dense)
    other = wrap("adam")
    other.build(dynamic.trainable_variables)
    data = reference.batches(count=1)
    reference.train(dynamic, optimizer, data)
    store = {}
    optimizer.save_own_variables(store)
    other.load_own_variables(store)
    for a, b in zip(optimizer.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_learning_rate_callbacks_in_fit():
    dynamic, _ = reference.models()
    dynamic.compile(wrap(keras.optimizers.SGD(0.5)), "mse")
    data = reference.batches(count=1)
    dynamic.fit(
        reference.KEYS[data[0][0]],
        data[0][1],
        epochs=3,
        verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(lambda e: 0.1 / (e + 1))
        ],
    )
    assert float(dynamic.optimizer.learning_rate) == pytest.approx(0.1 / 3)


@pytest.mark.parametrize("clip", ["clipnorm", "global_clipnorm"])
def test_a_gradient_of_16_bits_by_32_bit_ids_is_applied_wide(clip):
    table = lodestar.EmbeddingVariable(2, dtype="float16")
    table.insert_or_assign([1], [[0.0, 0.0]])
    # Its sum is infinite in float16.
    values = tf.fill([2, 2], tf.constant(6e4, tf.float16))
    gradient = tf.IndexedSlices(values, tf.constant([1, 1]), [-1, 2])
    optimizer = lodestar.optimizers.SGD(1.0, **{clip: 1.0})
    optimizer.apply([gradient], [table])
    np.testing.assert_allclose(table.lookup([1]), [[-(0.5**0.5)] * 2], 1e-3)
