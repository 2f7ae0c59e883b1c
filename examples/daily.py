"""Train day after day on a shop whose items come and go.

Every day a third of the items is new, and yesterday's model has never seen
them. Each day the program scores the day's clicks with yesterday's model, then
trains on them, which evicts the rows of items that are gone, and saves a
snapshot. At
the end a fresh model resumes from the newest snapshot.

    pip install tf-lodestar[tensorflow-cpu]
    python daily.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile

import keras
import numpy as np
import tensorflow as tf

DAYS, CLICKS, USERS, ITEMS, BATCH = 8, 40_000, 2000, 600, 500

# ## Days of clicks
#
# An item is on sale for three days. Each has an appeal, and each user a mood.
# One view in twenty is of an id that a robot made up and that never comes
# again: it should not get a row.

rng = np.random.default_rng(1)
mood = rng.normal(size=USERS)
appeal = rng.normal(size=ITEMS * (DAYS + 3))


def clicks(day):
    """Returns users, items, clicks and the true chance of a click of a day."""
    users = rng.integers(0, USERS, CLICKS)
    items = rng.integers(ITEMS * day, ITEMS * (day + 3), CLICKS)
    chance = 1 / (1 + np.exp(1 - mood[users] - appeal[items]))
    clicked = rng.random(CLICKS) < chance
    robot = rng.random(CLICKS) < 0.05
    items[robot] = rng.integers(2**40, 2**62, robot.sum())
    return users, items, clicked.astype("float32"), chance


def batches(users, items, clicked):
    """Returns a day's batches."""
    features = {"user": users[:, None], "item": items[:, None]}
    data = tf.data.Dataset.from_tensor_slices((features, clicked[:, None]))
    return data.batch(BATCH, drop_remainder=True)


# ## A model whose tables have rules
#
# `MinCount(2)` gives an id its row when a second batch sees it. `MaxAge` removes
# the rows that training has not seen for two days.


def make_model():
    """Returns a compiled model with one table for users and one for items."""
    keras.utils.set_random_seed(1)
    inputs = {
        name: keras.Input((1,), dtype="int64", name=name)
        for name in ("user", "item")
    }
    users = lodestar.layers.DynamicEmbedding(8, combiner="sum", name="users")
    items = lodestar.layers.DynamicEmbedding(
        8,
        combiner="sum",
        admission=lodestar.MinCount(2),
        eviction=lodestar.MaxAge(2 * CLICKS // BATCH),
        name="items",
    )
    rows = [users(inputs["user"]), items(inputs["item"])]
    hidden = keras.layers.Concatenate()(rows)
    hidden = keras.layers.Dense(32, activation="relu")(hidden)
    score = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model(inputs, score)
    model.compile(
        lodestar.optimizers.Adam(0.01),
        "binary_crossentropy",
        metrics=[keras.metrics.AUC(name="auc")],
    )
    return model


# ## Eight days
#
# A delta holds only the rows that changed since the snapshot before it.

model = make_model()
table = model.get_layer("items").table
path = tempfile.mkdtemp()
print("day  AUC before training  rows of items  evicted  snapshot")
for day in range(DAYS):
    users, items, clicked, chance = clicks(day)
    today = batches(users, items, clicked)
    before = model.evaluate(today, verbose=0, return_dict=True)["auc"]
    model.fit(today, shuffle=False, verbose=0)
    evicted = table.stats(reset=True)["evicted"]
    info = lodestar.snapshot.save(model, path, delta=day > 0)
    print(
        f"{day:3}  {before:19.3f}  {int(table.size()):13,}  {evicted:7,}  "
        f"{info.kind}, {info.bytes / 1e6:.1f} MB"
    )

# Another process would do the same: build the model, and restore the newest
# snapshot, which includes the versions that its delta builds on.

again = make_model()
lodestar.snapshot.restore(again, path)
same = again.evaluate(today, verbose=0) == model.evaluate(today, verbose=0)
print(
    f"\nThe restored model {'equals' if same else 'differs from'} the trained"
)

# ## How good is it?

best = keras.metrics.AUC()
best.update_state(clicked, chance)
print(f"AUC on day {day}")
print(f"  yesterday's model  {before:.3f}")
print(f"  the truth          {float(best.result()):.3f}")
