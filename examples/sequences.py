"""Predict the next item of a history: a GRU over ragged lists of ids.

Histories differ in length. Lodestar keeps them ragged from the log to the
embedding. Each batch is padded to its own longest history just before the GRU,
and the padding is masked.

    pip install tf-lodestar[tensorflow-cpu]
    python sequences.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import keras
import numpy as np
import tensorflow as tf

USERS, SERIES, EPISODES, AT_ONCE = 3000, 40, 12, 3
DIM, BATCH, EPOCHS, K = 32, 64, 10, 3

# ## A log of histories
#
# A user follows three series at once. Each evening they watch the next episode
# of one of the three, and when a series ends they begin another. So the last
# item points to one of three likely next items, and the two others are found
# further back in the history. Ids are any 64-bit integers.

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
catalogue = rng.integers(-(2**63), 2**63 - 1, SERIES * EPISODES)
popularity = 1 / np.arange(1, SERIES + 1)
popularity /= popularity.sum()


def history():
    """The numbers of 6 to 40 items, in the order in which a user saw them."""
    seen = []
    waiting = rng.choice(SERIES, SERIES, replace=False, p=popularity).tolist()
    running = [(waiting.pop(0), 0) for _ in range(AT_ONCE)]
    for which in rng.integers(0, AT_ONCE, rng.integers(6, 41)):
        series, episode = running[which]
        seen.append(series * EPISODES + episode)
        episode += 1
        running[which] = (
            (series, episode) if episode < EPISODES else (waiting.pop(0), 0)
        )
    return seen


# Training predicts each item from those before it. The last item of each
# history is held out.
log = tf.ragged.constant([history() for _ in range(USERS)], dtype=tf.int64)
past, following = tf.gather(catalogue, log[:, :-2]), log[:, 1:-1]
data = tf.data.Dataset.from_tensor_slices((past, following))
data = data.shuffle(USERS, seed=1).batch(BATCH)
data = data.map(lambda x, y: (x, y.to_tensor()))
print(f"{log.flat_values.shape[0]:,} items in {USERS:,} histories")

# ## The model
#
# The embedding returns ragged rows `[batch, (length), DIM]`. `pad` makes them
# `[batch, longest, DIM]` with a mask, which Keras passes on to the loss.

ids = keras.Input((None,), dtype="int64", ragged=True, name="history")
rows = lodestar.layers.DynamicEmbedding(DIM, name="item")(ids)
padded, lengths = lodestar.sequence.pad(rows)
states = keras.layers.GRU(2 * DIM, return_sequences=True)(padded)
scores = keras.layers.Dense(len(catalogue), name="scores")(states)
model = keras.Model(ids, scores)
model.compile(
    lodestar.optimizers.Adam(0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
fitted = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0)
loss = fitted.history["loss"]
print(f"loss {loss[0]:.2f} -> {loss[-1]:.2f}")

# ## Prediction
#
# Only the last state of a history predicts the next item. `unpad` drops the
# padding, and `pool` takes the last state of each history.

state = lodestar.sequence.pool(lodestar.sequence.unpad(states, lengths), "last")
recommender = keras.Model(ids, model.get_layer("scores")(state))
histories = tf.gather(catalogue, log[:, :-1])
by_model = recommender.predict(histories, batch_size=512, verbose=0)

# ## How good is it?
#
# The hit rate is how often the item that came next is among the first three.
# Compare it with two ways of counting: which items are seen most often, and
# which items are seen most often after the last one.

last, wanted = log[:, -2:].to_tensor().numpy().T
popular = np.bincount(following.flat_values, minlength=len(catalogue))
by_count = np.tile(popular / popular.sum(), (USERS, 1))
after = np.zeros([len(catalogue)] * 2)
np.add.at(after, (log[:, :-2].flat_values, following.flat_values), 1)
by_last = after[last] + by_count  # items never seen after it: by popularity


def hit_rate(scores):
    """How often the item that came next is among the K highest scores."""
    scores = scores.astype("float32")
    hits = keras.metrics.sparse_top_k_categorical_accuracy(wanted, scores, K)
    return float(np.mean(hits))


print(f"\nThe next item is among the first {K}")
print(f"  most popular items         {hit_rate(by_count):.3f}")
print(f"  most often after the last  {hit_rate(by_last):.3f}")
print(f"  GRU                        {hit_rate(by_model):.3f}")
