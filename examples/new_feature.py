"""Resume training with an additional feature and another optimizer.

Monday's model knows the user of a click and trains with Adagrad. Its training
is interrupted, and resumes from a snapshot without loss. Tuesday's model also
uses the item, and trains with Adam. It restores users and dense weights from
Monday's snapshot, starts with new items and a new optimizer, and beats Monday's
model from its first epoch on.

    .venv/bin/bazel run //examples:new_feature
"""

import argparse
import os
import tempfile

# Before TensorFlow is imported, so that its runtime does not log to users.
os.environ.setdefault("LODESTAR_QUIET_START", "1")

import lodestar  # noqa: E402

# isort: split
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

USERS, ITEMS, CLICKS, BATCH = 5000, 500, 64_000, 256
STEPS = CLICKS // BATCH


def clicks(seed: int, features: list[str]) -> tf.data.Dataset:
    """Returns batches of one day's clicks, repeated.

    The probability of a click depends on the user and on the item.
    """
    tastes = np.random.default_rng(1)
    user_taste = tastes.normal(size=USERS)
    item_taste = tastes.normal(size=ITEMS)
    rng = np.random.default_rng(seed)
    user = rng.integers(0, USERS, CLICKS)
    item = rng.integers(0, ITEMS, CLICKS)
    score = 2 * (user_taste[user] + item_taste[item])
    clicked = rng.random(CLICKS) < 1 / (1 + np.exp(-score))
    # Ids as in a log: any 64 bits.
    columns = {"user": user * 1_000_003 - 7, "item": item - (1 << 62)}
    data = tf.data.Dataset.from_tensor_slices(
        (
            {name: columns[name] for name in features},
            clicked.astype(np.float32),
        )
    )
    return data.repeat().batch(BATCH)


def make_model(
    features: list[str], optimizer: keras.optimizers.Optimizer
) -> keras.Model:
    """Returns a sum of embeddings under two dense layers.

    The dense layers do not depend on the number of features.
    """
    inputs = {
        name: keras.Input((), dtype="int64", name=name) for name in features
    }
    rows = [
        lodestar.layers.DynamicEmbedding(
            8, embeddings_initializer="normal", name=f"{name}_rows"
        )(inputs[name])
        for name in features
    ]
    x = keras.layers.Add(name="sum")(rows) if len(rows) > 1 else rows[0]
    x = keras.layers.Dense(16, activation="relu", name="hidden")(x)
    out = keras.layers.Dense(1, activation="sigmoid", name="score")(x)
    model = keras.Model(inputs, out)
    model.compile(
        lodestar.optimizers.wrap(optimizer),
        "binary_crossentropy",
    )
    return model


def monday() -> keras.Model:
    """Returns the model with the user as its only feature."""
    keras.utils.set_random_seed(0)
    return make_model(["user"], keras.optimizers.Adagrad(0.1, 1e-4))


def main(folder: str) -> tuple[float, float]:
    """Trains both days; returns their losses on clicks of a third day."""
    some, all_ = ["user"], ["user", "item"]

    def loss(model: keras.Model, features: list[str]) -> float:
        test = clicks(3, features).take(STEPS // 4)
        return model.evaluate(test, verbose=0)

    def train(model: keras.Model, epochs: int) -> None:
        lodestar.train.fit(
            model,
            clicks(1, some),
            epochs=epochs,
            steps_per_epoch=STEPS,
            snapshots=lodestar.callbacks.Snapshot(folder, 10, keep=3),
            verbose=0,
        )

    # Monday, interrupted after the first of two epochs. The snapshots also hold
    # the position in the data.
    train(monday(), epochs=1)

    # Another process would do the same with a new model.
    model = monday()
    step = lodestar.snapshot.versions(folder)[-1].step
    print(f"Monday resumes at step {step}")
    train(model, epochs=2)
    before = loss(model, some)

    # Tuesday: an additional feature, and Adam instead of Adagrad.
    model = make_model(all_, keras.optimizers.Adam(0.01))
    report = lodestar.snapshot.restore(
        model, folder, on_missing="init", optimizer_slots="reset"
    )
    print(
        f"Tuesday starts at step {report.step}: {report.restored}; new: "
        f"{', '.join(report.initial)}"
    )
    model.fit(
        clicks(2, all_),
        steps_per_epoch=STEPS,
        callbacks=[lodestar.callbacks.Snapshot(folder)],
        verbose=0,
    )
    after = loss(model, all_)
    print(
        f"loss on Wednesday's clicks: Monday {before:.3f}, Tuesday {after:.3f}"
    )
    for info in lodestar.snapshot.versions(folder):
        print(
            f"version {info.version}: {info.kind}, step {info.step}, "
            f"{info.rows} rows, {info.bytes} bytes"
        )

    # Tables can be restored without a model as well.
    users = lodestar.EmbeddingVariable(8, name="users")
    prices = lodestar.EmbeddingVariable(8, name="prices")
    report = lodestar.snapshot.restore(
        [users, prices],
        folder,
        rename={"user_rows": "users"},
        on_missing="init",
        on_extra="ignore",
        optimizer_slots="reset",
    )
    print(
        f"tables alone: {report.restored}; new: {', '.join(report.initial)}; "
        f"unused: {', '.join(report.ignored)}"
    )
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--snapshots", help="folder to keep; default: a temporary one"
    )
    chosen = parser.parse_args().snapshots
    if chosen:
        main(chosen)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
