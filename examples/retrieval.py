"""Find ten items for each user out of a catalogue: two towers with keras-rs.

A retrieval model places users and items in one space, so that the items next to
a user are those the user is likely to choose. The rows of users and items are
Lodestar's: they are keyed by the names in the log, without a vocabulary. The
loss correction, the top-k search and the metric are keras-rs's.

    pip install tf-lodestar[tensorflow-cpu] keras-rs
    python retrieval.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import keras
import keras_rs
import numpy as np
import tensorflow as tf

USERS, ITEMS, CHOICES = 3000, 1000, 16
DIM, BATCH, EPOCHS, K = 8, 256, 8, 10

# ## A log of choices
#
# Every user chooses 16 items, one after another. What users like is known here,
# so we can also compute how well a perfect model would do: a user prefers an
# item by the product of two hidden vectors, and some items are popular with
# everybody. Adding Gumbel noise and sorting draws without repetition.

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
users = np.array([f"user-{n}" for n in range(USERS)])
items = np.array([f"item-{n}" for n in range(ITEMS)])
likes = rng.normal(size=(USERS, 4)) @ rng.normal(size=(4, ITEMS))
likes += np.log(ITEMS / np.arange(1, ITEMS + 1))
chosen = np.argsort(-likes - rng.gumbel(size=likes.shape), axis=1)[:, :CHOICES]

# The last choice of each user is held out.
train, test = chosen[:, :-1], chosen[:, -1]
counts = np.bincount(train.ravel(), minlength=ITEMS)
print(f"{train.size:,} choices of {USERS:,} users among {ITEMS:,} items")

# A batch also has the probability of meeting each of its items in a batch.
data = {
    "user": tf.constant(np.repeat(users, CHOICES - 1)),
    "item": tf.constant(items[train.ravel()]),
    "probability": (counts / train.size)[train.ravel()].astype("float32"),
}

# ## Two towers
#
# Each tower turns ids into rows. `DynamicEmbedding` takes strings, and gives a
# user or item its row when training first sees it. `call` returns the score of
# every item of the batch for every user of the batch.


class TwoTowers(keras.Model):
    """Scores `[B, B]` of users (rows) and items (columns) of a batch."""

    def __init__(self):
        super().__init__()
        self.user = lodestar.layers.DynamicEmbedding(DIM, name="user")
        self.item = lodestar.layers.DynamicEmbedding(DIM, name="item")
        self.correct = keras_rs.layers.SamplingProbabilityCorrection()

    def call(self, batch, training=None):
        user = self.user(batch["user"], training=training)
        item = self.item(batch["item"], training=training)
        return keras.ops.matmul(user, keras.ops.transpose(item))

    # The other items of a batch serve as negatives. Popular items are in many
    # batches; without the correction they would be pushed away too often. Two
    # users of a batch may have chosen the same item: both columns are right.

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        same = tf.cast(x["item"][:, None] == x["item"], tf.float32)
        wanted = same / tf.reduce_sum(same, axis=1, keepdims=True)
        scores = self.correct(y_pred, x["probability"])
        losses = keras.losses.categorical_crossentropy(
            wanted, scores, from_logits=True
        )
        return keras.ops.mean(losses)


# ## Training
#
# The optimizer updates the rows that a batch reads, and adds new ones.

model = TwoTowers()
model.compile(lodestar.optimizers.Adam(0.01))
history = model.fit(data, batch_size=BATCH, epochs=EPOCHS, verbose=0).history
rows = {t.name: int(t.table.size()) for t in (model.user, model.item)}
print(f"loss {history['loss'][0]:.2f} -> {history['loss'][-1]:.2f}, {rows=}")

# ## Retrieval
#
# `BruteForceRetrieval` searches the rows of the whole catalogue. It returns
# positions, which `items` turns into names. (Its `candidate_ids` would have to
# be 32-bit integers.)

catalogue = model.item(items)
search = keras_rs.layers.BruteForceRetrieval(catalogue, k=3)
_, places = search(model.user(users[:3]))
for user, names in zip(users, items[places.numpy()]):
    print(f"{user} may like {', '.join(names)}")

# ## How good is it?
#
# Recall@10 is how often the held-out choice is among the first ten items. A
# label of -1 takes an item out of the list: a user does not choose it again.

labels = np.zeros((USERS, ITEMS), "float32")
np.put_along_axis(labels, train, -1, axis=1)
np.put_along_axis(labels, test[:, None], 1, axis=1)


def recall(scores):
    """Recall@10 of scores `[USERS, ITEMS]`."""
    return float(keras_rs.metrics.RecallAtK(k=K)(labels, scores))


by_model = model.user(users) @ tf.transpose(catalogue)
by_count = np.broadcast_to(counts.astype("float32"), labels.shape)
print(f"\nRecall@{K}")
print(f"  most popular items  {recall(by_count):.3f}")
print(f"  two towers          {recall(by_model):.3f}")
print(f"  the truth           {recall(likes):.3f}")
