"""Tables of every dtype, through lookups, gradients, optimizers and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

DTYPES = ["float32", "float16", "bfloat16"]
DIM = 5
IDS = np.array([3, -1, 2**63 - 1, 7])


def make(dtype, dim=DIM, **options):
    return lodestar.EmbeddingVariable(
        dim, dtype=dtype, **{"seed": 1, **options}
    )


def rows_of(dtype, seed=0, dim=DIM):
    rows = np.random.default_rng(seed).normal(size=(len(IDS), dim))
    return rows.astype(np.float32).astype(tf.as_dtype(dtype).as_numpy_dtype)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 4096])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_keep_their_dtype_and_bits(dtype, dim):
    t = make(dtype, dim)
    rows = rows_of(dtype, dim=dim)
    t.insert_or_assign(IDS, rows)
    found, is_found = t.find(IDS)
    assert found.dtype == t.dtype == tf.as_dtype(dtype)
    assert is_found.numpy().all()
    for out in (found, t.lookup(IDS), t.inspect(IDS).rows):
        assert out.numpy().tobytes() == rows.tobytes()
    other = make(dtype, dim)
    other.load_rows(t.export())
    assert other.find(IDS)[0].numpy().tobytes() == rows.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_missing_ids(dtype):
    vector = make(dtype, default_row=[0.1] * DIM)
    wanted = np.full(DIM, 0.1).astype(vector._row_dtype.as_numpy_dtype)
    assert vector.lookup([1]).numpy().tobytes() == wanted.tobytes()
    copy = lodestar.EmbeddingVariable.from_config(vector.get_config())
    assert copy.dtype == vector.dtype
    assert copy.lookup([1]).numpy().tobytes() == wanted.tobytes()
    initial = make(dtype, default_row="initial", seed=(1, 3))
    as_float = make("float32", default_row="initial", seed=(1, 3))
    np.testing.assert_array_equal(
        initial.lookup(IDS),
        tf.cast(as_float.lookup(IDS), initial.dtype),
    )


@pytest.mark.parametrize("function", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_are_computed_wide_and_rounded_once(dtype, function):
    t = make(dtype)
    rows = rows_of(dtype)
    t.insert_or_assign(IDS, rows)
    optimizer = lodestar.optimizers.Adagrad(
        0.1, initial_accumulator_value=0.125
    )
    upstream = rows_of(dtype, seed=2)

    def step():
        with tf.GradientTape() as tape:
            out = t.lookup(IDS, training=True)
            loss = tf.reduce_sum(out * upstream)
        [gradient] = tape.gradient(loss, [t])
        optimizer.apply([gradient], [t])
        return gradient.values

    run = tf.function(step) if function else step
    slot = np.full(rows.shape, 0.125, np.float32)
    rate, epsilon = np.float32(0.1), np.float32(1e-7)
    g = upstream.astype(np.float32)
    for _ in range(3):
        assert run().dtype == t.dtype
        slot = slot + g * g
        after = rows.astype(np.float32) - rate * g / np.sqrt(slot + epsilon)
        rows = after.astype(rows.dtype)
        found = t.find(IDS)[0].numpy()
        if dtype in ("float16", "bfloat16"):
            np.testing.assert_array_equal(found, rows)
        else:
            np.testing.assert_allclose(found, rows, 1e-6, 1e-6)
    exported = t.export().optimizer_slots["accumulator"]
    assert exported.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_made_in_float32(dtype):
    # Added one by one, a bfloat16 sum would stop at 256.
    t = make(dtype, embeddings_initializer="ones")
    bag = tf.ragged.constant([[1] * 1000, [], [1, 2]], dtype=tf.int64)
    with tf.GradientTape() as tape:
        pooled = t.lookup(bag, training=True, combiner="sum")
        loss = tf.reduce_sum(pooled)
    assert pooled.dtype == t.dtype
    np.testing.assert_array_equal(
        pooled, tf.constant([[1000.0], [0.0], [2.0]], t.dtype) + 0 * pooled
    )
    [gradient] = tape.gradient(loss, [t])
    assert gradient.values.dtype == t.dtype
    np.testing.assert_array_equal(
        gradient.values[:, 0], tf.constant([1001.0, 1.0], t.dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_of_a_bag_get_a_gradient(dtype):
    t = make(dtype, 2)
    t.insert_or_assign([1, 2], [[1.0, 2.0], [3.0, 4.0]])
    weights = tf.Variable([0.5, 0.25])
    with tf.GradientTape() as tape:
        rows = t.lookup([[1, 2]], weights=weights[None], combiner="sum")
        loss = tf.reduce_sum(rows)
    gradient = tape.gradient(loss, weights)
    assert gradient.dtype == tf.float32
    np.testing.assert_array_equal(gradient, [3.0, 7.0])


def test_a_loss_scale_is_removed_before_rounding():
    t = make("float16", embeddings_initializer="zeros")
    optimizer = lodestar.optimizers.LossScaleOptimizer(
        lodestar.optimizers.SGD(1e4),
        initial_scale=2.0**15,
    )
    with tf.GradientTape() as tape:
        rows = t.lookup([1], training=True)
        loss = optimizer.scale_loss(tf.reduce_sum(tf.cast(rows, "float32")))
        loss *= 1e-9  # no float16 is this small
    optimizer.apply(tape.gradient(loss, [t]), [t])
    np.testing.assert_allclose(t.find([1])[0], np.full((1, DIM), -1e-5), 1e-2)


@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float64"]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_cast_rows_to_their_policy(dtype, policy):
    t = make(dtype)
    layer = lodestar.layers.DynamicEmbedding(table=t, dtype=policy)
    out = layer(tf.constant([[1, 2]]))
    assert out.dtype == layer.compute_dtype
    copy = type(layer).from_config(layer.get_config())
    assert copy.table.dtype == t.dtype


def test_a_collection_may_have_tables_of_different_dtypes():
    tables = {dtype: make(dtype, name=f"of_{dtype}") for dtype in DTYPES}
    for t in tables.values():
        t.insert_or_assign(IDS, np.ones([4, DIM]))
    embed = lodestar.layers.EmbeddingCollection(
        {n: lodestar.Feature(t, combiner="sum") for n, t in tables.items()}
    )
    optimizer = lodestar.optimizers.SGD(0.5)
    ids = {name: tf.constant([[3, 7, 3]]) for name in DTYPES}
    with tf.GradientTape() as tape:
        out = embed(ids, training=True)
        loss = tf.add_n([tf.reduce_sum(rows) for rows in out.values()])
    hooks = [t for t in tables.values()]
    gradients = tape.gradient(loss, hooks)
    assert [g.values.dtype.name for g in gradients] == DTYPES
    optimizer.apply(gradients, hooks)
    for name, t in tables.items():
        assert out[name].dtype == tf.float32
        np.testing.assert_array_equal(out[name], np.full([1, DIM], 3.0))
        np.testing.assert_array_equal(
            tf.cast(t.find([3, 7])[0], tf.float32), [[0.0] * DIM, [0.5] * DIM]
        )


@pytest.mark.parametrize(
    "dtype, to",
    [*zip(DTYPES, DTYPES), *zip(DTYPES, [*DTYPES[1:], DTYPES[0]])],
)
def test_saved_rows_need_a_table_of_their_dtype(dtype, to, tmp_path):
    def model(row_dtype):
        t = make(row_dtype, name="t", default_row=lodestar.SharedRows(2))
        ids = keras.Input((2,), dtype="int64")
        embed = lodestar.layers.DynamicEmbedding(table=t, name="embed")
        return t, keras.Model(ids, embed(ids))

    saved, saved_model = model(dtype)
    saved.insert_or_assign(IDS, rows_of(dtype))
    checkpoint = tf.train.Checkpoint(t=saved).write(str(tmp_path / "c"))
    saved_model.save_weights(tmp_path / "w.weights.h5")
    loaded, loaded_model = model(to)
    before = loaded.export().rows.numpy()
    if to != dtype:
        with pytest.raises(ValueError, match=f"rows of {dtype}.*dtype={to}"):
            loaded_model.load_weights(tmp_path / "w.weights.h5")
        with pytest.raises(tf.errors.InvalidArgumentError, match="dtype"):
            tf.train.Checkpoint(t=loaded).read(checkpoint).assert_consumed()
        np.testing.assert_array_equal(loaded.export().rows, before)
        return
    for load in (
        lambda: loaded_model.load_weights(tmp_path / "w.weights.h5"),
        lambda: tf.train.Checkpoint(t=loaded).read(checkpoint),
    ):
        loaded.clear()
        load()
        for a, b in zip(
            loaded._export_all().values(), saved._export_all().values()
        ):
            assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_saved_model_reads_rows(dtype, tmp_path):
    module = tf.Module()
    module.t = make(dtype)
    module.t.insert_or_assign(IDS, rows_of(dtype))
    module.read = tf.function(
        lambda ids: module.t.lookup(ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    out = loaded.read(IDS).numpy()
    assert out.tobytes() == rows_of(dtype).tobytes()


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match="`dtype`=int32 is not one of float32"):
        make(tf.int32)
