"""Serve a model that learns of new articles while it answers.

A news site trains all the time: articles appear every minute, and a server
that has never heard of an article cannot rank it. Here a trainer saves
snapshots, and a `LiveModel` follows them. In production the two are processes
on different machines that share a folder; in this program the trainer is a
thread.

    pip install tf-lodestar[tensorflow-cpu]
    python serving.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import threading
import time

import keras
import numpy as np
import tensorflow as tf

READERS, BATCH = 2000, 512
keras.utils.set_random_seed(1)
rng = np.random.default_rng(7)

# ## Clicks
#
# Each article has an appeal, and each reader a taste. Half of the articles that
# are read were published a short time ago.

taste = rng.normal(size=READERS)
appeal = list(rng.normal(size=200))


def features(readers, articles):
    """Returns the features of pairs of a reader and an article, `[B, 1]`."""
    return {
        "reader": tf.constant(readers[:, None], tf.int64),
        "article": tf.constant(articles[:, None], tf.int64),
    }


def batch():
    """Returns features and clicks of a batch."""
    readers = rng.integers(0, READERS, BATCH)
    articles = rng.integers(0, len(appeal), BATCH)
    recent = rng.random(BATCH) < 0.5
    articles[recent] = len(appeal) - 1 - rng.integers(0, 40, recent.sum())
    likes = np.array(appeal)[articles] + taste[readers] - 1
    clicks = rng.random(BATCH) < 1 / (1 + np.exp(-likes))
    return features(readers, articles), clicks[:, None].astype("float32")


# ## A model of the chance of a click

inputs = {
    name: keras.Input((1,), dtype="int64", name=name)
    for name in ("reader", "article")
}
rows = [
    lodestar.layers.DynamicEmbedding(8, combiner="sum", name=f"{name}s")(x)
    for name, x in inputs.items()
]
hidden = keras.layers.Concatenate()(rows)
hidden = keras.layers.Dense(16, activation="relu")(hidden)
score = keras.layers.Dense(1, activation="sigmoid")(hidden)
model = keras.Model(inputs, {"click": score})
model.compile(lodestar.optimizers.Adam(0.01), "binary_crossentropy")
for _ in range(200):
    model.train_on_batch(*batch())

# ## The trainer
#
# It saves a snapshot every 20 steps. Most are deltas, which hold the rows that
# changed.

folder = tempfile.mkdtemp()
exported, snapshots = f"{folder}/model", f"{folder}/snapshots"
lodestar.export.save(model, exported)
lodestar.snapshot.save(model, snapshots)
done = threading.Event()


def train():
    """Trains and saves until `done`."""
    while not done.is_set():
        for _ in range(20):
            model.train_on_batch(*batch())
        lodestar.snapshot.save(model, snapshots, delta=True)


# ## The server
#
# An article that everybody likes is published. The server ranks it low until a
# version arrives in which it has a row.

readers = np.arange(100)
with lodestar.serving.LiveModel(exported, snapshots, 0.1) as live:

    def score_of(article):
        """Returns the mean chance of a click by a hundred readers."""
        pairs = features(readers, np.full(100, article))
        return float(tf.reduce_mean(live(pairs)["click"]))

    appeal.append(4.0)
    article = len(appeal) - 1
    before, first = score_of(article), live.version()
    print(f"article {article} is published: {before:.2f} in version {first}")
    trainer = threading.Thread(target=train)
    trainer.start()
    began, after = time.perf_counter(), before
    while after < 2 * before and time.perf_counter() - began < 60:
        time.sleep(0.05)
        after = score_of(article)
    took = time.perf_counter() - began
    print(f"{took:.1f} s later: {after:.2f} in version {live.version()}")
    done.set()
    trainer.join()

# ## How good is it?

truth = np.mean(1 / (1 + np.exp(-(4.0 + taste[readers] - 1))))
print("\nChance of a click on the new article")
print(f"  when it was published   {before:.3f}")
print(f"  as soon as it is known  {after:.3f}")
print(f"  the truth               {truth:.3f}")
