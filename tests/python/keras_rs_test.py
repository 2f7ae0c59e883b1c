"""keras-rs on rows of tables: interactions, retrieval, metrics and losses."""

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf

import lodestar

DIM, LISTS, ITEMS = 8, 400, 6


def compiled(model, loss, metrics=()):
    optimizer = lodestar.optimizers.Adam(0.02)
    model.compile(optimizer, loss, metrics=list(metrics))
    return model


def assert_same_after_loading(model, x, path):
    model.save(path)
    again = keras.saving.load_model(path)
    np.testing.assert_array_equal(
        again.predict(x, verbose=0), model.predict(x, verbose=0)
    )


# Ranking of single examples, as in DLRM and DCN.


def clicks(rng):
    """Returns ids of three features, dense or ragged, and whether all agree."""
    signs = rng.choice([-1, 1], (2000, 3))
    ids = signs * rng.integers(1, 50, (2000, 3)) + 2**40
    x = {
        "user": ids[:, 0],
        "item": ids[:, 1, None],
        "tags": tf.RaggedTensor.from_tensor(np.stack([ids[:, 2]] * 2, 1)),
        "price": rng.normal(size=(2000, 4)).astype(np.float32),
    }
    return x, (signs.prod(axis=1) > 0).astype(np.float32)


def rows_of_clicks():
    inputs = {
        "user": keras.Input((), dtype="int64", name="user"),
        "item": keras.Input((1,), dtype="int64", name="item"),
        "tags": keras.Input((None,), dtype="int64", ragged=True, name="tags"),
        "price": keras.Input((4,), name="price"),
    }
    rows = lodestar.layers.EmbeddingCollection(
        {
            "user": lodestar.Feature(output_dim=DIM),
            "item": lodestar.Feature(output_dim=DIM, combiner="sum"),
            "tags": lodestar.Feature(output_dim=DIM, combiner="mean"),
        }
    )({name: inputs[name] for name in ("user", "item", "tags")})
    price = keras.layers.Dense(DIM)(inputs["price"])
    return inputs, [*rows.values(), price]


def dot_interaction(rows, **options):
    return keras_rs.layers.DotInteraction(**options)(rows)


def feature_cross(rows, **options):
    x = stacked = keras.layers.Concatenate()(rows)
    for _ in range(2):
        x = keras_rs.layers.FeatureCross(**options)(stacked, x)
    return x


@pytest.mark.parametrize(
    "interaction, options",
    [
        (dot_interaction, {"self_interaction": True, "skip_gather": True}),
        (feature_cross, {"projection_dim": 8}),
    ],
)
def test_interactions(interaction, options, rng, tmp_path):
    inputs, rows = rows_of_clicks()
    x = interaction(rows, **options)
    x = keras.layers.Concatenate()([x, *rows])
    x = keras.layers.Dense(32, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))
    x, y = clicks(rng)
    auc = keras.metrics.AUC(name="auc")
    compiled(model, "binary_crossentropy", [auc])
    model.fit(x, y, epochs=12, batch_size=128, verbose=0)
    assert model.evaluate(x, y, verbose=0, return_dict=True)["auc"] > 0.9
    assert_same_after_loading(model, x, tmp_path / "model.keras")


def test_interactions_under_mixed_precision(rng):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        inputs, rows = rows_of_clicks()
        x = [dot_interaction(rows), feature_cross(rows)]
        assert {t.dtype for t in x} == {"bfloat16"}
        x = keras.layers.Concatenate()(x)
        model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(x))
        x, y = clicks(rng)
        compiled(model, "mse").fit(x, y, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")


# Two towers.


@keras.saving.register_keras_serializable("keras_rs_test")
class TwoTowers(keras.Model):
    """Returns scores `[B, B]` of the users and items of a batch."""

    def __init__(self, hard=None, **kwargs):
        super().__init__(**kwargs)
        self.user = lodestar.layers.DynamicEmbedding(DIM, name="user")
        self.item = lodestar.layers.DynamicEmbedding(DIM, name="item")
        self.correct = keras_rs.layers.SamplingProbabilityCorrection()
        self.hard = hard and keras_rs.layers.HardNegativeMining(hard)

    def get_config(self):
        hard = self.hard and self.hard._num_hard_negatives
        return {**super().get_config(), "hard": hard}

    def call(self, x, training=None):
        user = self.user(x["user"], training=training)
        item = self.item(x["item"], training=training)
        return keras.ops.matmul(user, keras.ops.transpose(item))

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        labels = tf.eye(tf.shape(y_pred)[0])
        logits = self.correct(y_pred, x["probability"])
        if self.hard is not None:
            logits, labels = self.hard(logits, labels)
        return keras.ops.mean(
            keras.losses.categorical_crossentropy(
                labels, logits, from_logits=True
            )
        )


CATALOGUE = np.array([2**62, -5, 7, 0, -(2**63), 11, 12, 13])


def choices(rng):
    """Returns users and the one item each chooses, by the last digit of the id."""
    user = rng.integers(-(2**62), 2**62, 64).repeat(20)
    wanted = user % len(CATALOGUE)
    probability = np.bincount(wanted)[wanted] / len(wanted)
    order = rng.permutation(len(user))
    x = {
        "user": user,
        "item": CATALOGUE[wanted],
        "probability": probability.astype(np.float32),
    }
    return {name: values[order] for name, values in x.items()}


def test_two_towers(rng, tmp_path):
    x = choices(rng)
    model = compiled(TwoTowers(hard=3), None)
    model.fit(x, epochs=20, batch_size=32, verbose=0)
    assert_same_after_loading(model, x, tmp_path / "model.keras")
    search = keras_rs.layers.BruteForceRetrieval(model.item(CATALOGUE), k=2)
    scores, places = search(model.user(x["user"]))
    found = CATALOGUE[places.numpy()]
    assert np.mean(found[:, 0] == x["item"]) > 0.95
    assert (scores[:, 0] >= scores[:, 1]).numpy().all()
    # Training has changed the rows since.
    search.update_candidates(model.item(CATALOGUE[::-1]))
    _, places = search(model.user(x["user"]))
    np.testing.assert_array_equal(CATALOGUE[::-1][places.numpy()], found)


def test_retrieval_of_ids_in_an_export(rng, tmp_path):
    """Retrieval by position, then a lookup of 64-bit ids."""

    class Recommender(keras.Model):
        def __init__(self, towers):
            super().__init__()
            self.user = towers.user
            rows = towers.item(CATALOGUE)
            self.search = keras_rs.layers.BruteForceRetrieval(rows, k=3)

        def call(self, user):
            scores, places = self.search(self.user(user))
            return {"items": tf.gather(CATALOGUE, places), "scores": scores}

    x = choices(rng)
    towers = compiled(TwoTowers(), None)
    towers.fit(x, epochs=2, verbose=0)
    model = Recommender(towers)
    users = x["user"][:5]
    want = model(users)
    spec = tf.TensorSpec([None], tf.int64)
    path = tmp_path / "saved_model"
    lodestar.export.save(model, path, inputs={"user": spec})
    loaded = tf.saved_model.load(path)
    served = loaded.serve({"user": tf.constant(users)})
    np.testing.assert_array_equal(served["items"], want["items"])
    # A graph may sum in another order, and scores are also near zero.
    np.testing.assert_allclose(
        served["scores"], want["scores"], rtol=1e-5, atol=1e-5
    )


def test_limits_of_keras_rs():
    """If this fails, change the limits in docs/from_keras_rs.md."""
    search = keras_rs.layers.BruteForceRetrieval(
        tf.eye(2), tf.constant([2**40 + 5, 5], tf.int64), k=1
    )
    assert search(tf.eye(2))[1].numpy().tolist() == [[5], [5]]
    with pytest.raises(ValueError, match="shape"):
        search.update_candidates(tf.eye(3)[:, :2])
    logits = tf.constant([[3.0, 1.0, 2.0]])
    kept = keras_rs.layers.RemoveAccidentalHits()(
        logits, tf.constant([[1.0, 0.0, 0.0]]), tf.constant([7, 8, 7])
    )
    np.testing.assert_array_equal(kept, logits)


# Ranking of lists.


def lists(rng):
    """Returns padded lists of items with grades from 0 to 4; padding has grade -1."""
    items = rng.integers(1, 200, (LISTS, ITEMS))
    grades = (items % 5).astype(np.float32)
    absent = np.arange(ITEMS) >= rng.integers(2, ITEMS + 1, (LISTS, 1))
    return np.where(absent, 0, items), np.where(absent, -1, grades)


def scorer():
    items = keras.Input((ITEMS,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(DIM, padding_id=0)(items)
    scores = keras.layers.Dense(1)(rows)
    return keras.Model(items, scores[..., 0])


LOSSES = [
    keras_rs.losses.ListMLELoss,
    keras_rs.losses.PairwiseHingeLoss,
    keras_rs.losses.PairwiseLogisticLoss,
    keras_rs.losses.PairwiseMeanSquaredError,
]
METRICS = [
    keras_rs.metrics.DCG,
    keras_rs.metrics.MeanAveragePrecision,
    keras_rs.metrics.MeanReciprocalRank,
    keras_rs.metrics.NDCG,
    keras_rs.metrics.PrecisionAtK,
    keras_rs.metrics.RecallAtK,
]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_metrics_of_lists(loss, rng, tmp_path):
    x, y = lists(rng)
    kinds = METRICS if loss is LOSSES[0] else []
    metrics = [kind(k=3, name=kind.__name__) for kind in kinds]
    model = compiled(scorer(), loss(), metrics)
    before = model.evaluate(x, y, verbose=0, return_dict=True)
    model.fit(x, y, epochs=15 if kinds else 2, verbose=0)
    after = model.evaluate(x, y, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"]
    if not kinds:
        return
    for kind in kinds:
        assert after[kind.__name__] > before[kind.__name__]
    assert after["NDCG"] > 0.95
    assert int(model.layers[1].table.size()) == len(np.unique(x)) - 1
    assert_same_after_loading(model, x, tmp_path / "model.keras")
