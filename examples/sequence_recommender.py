"""Recommends the next item from nested histories: user -> sessions -> items.

bazel run //examples:sequence_recommender

A user has any number of sessions and a session any number of items, so a batch
of histories is a RaggedTensor of two levels, [users, (sessions), (items)]. The
ids are looked up as they are, and pooled level by level: the items of a session
to its vector, the sessions of a user to theirs. Nothing is padded, and an item
gets its row when it is first seen.
"""

import os
import pathlib
import sys
import types

# Before TensorFlow is imported: what its runtime logs is not for users.
os.environ.setdefault("LODESTAR_QUIET_START", "1")

import lodestar  # noqa: E402

# isort: split
import click  # noqa: E402
import keras  # noqa: E402
import next_item_ranking as ranking  # noqa: E402
import numpy as np  # noqa: E402
import session_log  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import ops  # noqa: E402

from lodestar._command_line import (  # noqa: E402
    INPUT_ERRORS,
    Command,
    path,
    positive,
)
from lodestar.data import DataError  # noqa: E402

DIM = 32
MAX_SESSIONS = 10  # of a history, the newest ones
TOP_K = 20
HELD_OUT_DAYS = 3
_SERVED_USERS = 100
_MAX_SEED = 2**32 - 1  # NumPy's
_TOLERANCE = 1e-5  # of two ways to run the same arithmetic


class Histories:
    """Cuts the history before any event out of a log, in batches.

    An event is an item that a user took; its number is its place in the log.

    Args:
        log: user -> sessions -> items, sessions in the order of time.
    """

    def __init__(self, log: lodestar.ragged.LoDTensor):
        users = log.to_ragged()  # [U, (sessions), (items)], without a copy
        self._items = users.flat_values
        self._items_begin = users.values.row_splits
        self._session_of_event = users.values.value_rowids()
        self._user_of_session = users.value_rowids()
        self._sessions_begin = users.row_splits

    def before(self, events: tf.Tensor) -> tf.RaggedTensor:
        """What the users did before the events `[B]`.

        Returns:
            `[B, (sessions), (items)]`: the newest sessions of the user, the
            current one last, without the event and what follows. So a history
            ends with an empty session where one has just begun:
            [[5, 7], [9], []].
        """
        current = tf.gather(self._session_of_event, events)
        user = tf.gather(self._user_of_session, current)
        first = tf.maximum(
            tf.gather(self._sessions_begin, user), current - MAX_SESSIONS + 1
        )
        sessions = tf.ragged.range(first, current + 1)  # [B, (sessions)]
        begin = tf.gather(self._items_begin, sessions.values)
        end = tf.gather(self._items_begin, sessions.values + 1)
        # Only the current session reaches as far as its event.
        end = tf.minimum(end, tf.repeat(events, sessions.row_lengths()))
        places = tf.ragged.range(begin, end)  # [all sessions, (items)]
        return tf.RaggedTensor.from_nested_row_splits(
            tf.gather(self._items, places.values),
            [sessions.row_splits, places.row_splits],
        )

    def items(self, events: tf.Tensor) -> tf.Tensor:
        """The items of the events, `[B]`."""
        return tf.gather(self._items, events)


def training_batches(
    histories: Histories, events: np.ndarray, batch_size: int, seed: int
) -> tf.data.Dataset:
    """Batches of histories, and the items of the batch as the candidates.

    Each history `[B, (sessions), (items)]` has to find its own item among the
    distinct ones of the batch, `[C]`; the label says which it is. A popular
    item is in most batches and a rare one in few: the model is told how likely
    each was to be in this one, as the logarithm `[C]`, and takes it off the
    score, which so stays a score among all items, as in sampled softmax.
    """
    _, number, count = np.unique(
        histories.items(events), return_inverse=True, return_counts=True
    )
    share = (count / len(events))[number].astype(np.float32)

    def batch(events, share):
        candidates, label = tf.unique(histories.items(events))
        share = tf.math.unsorted_segment_max(share, label, tf.size(candidates))
        draws = tf.cast(tf.size(events), tf.float32)
        # 1 - (1 - share)^draws, for shares near 0, too.
        in_batch = -tf.math.expm1(draws * tf.math.log1p(-share))
        features = {
            "history": histories.before(events),
            "items": candidates,
            "log_in_batch": tf.math.log(in_batch),
        }
        return features, label

    return (
        tf.data.Dataset.from_tensor_slices((events, share))
        .shuffle(len(events), seed=seed)
        .batch(batch_size)
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def build_models(seed: int) -> tuple[keras.Model, keras.Model]:
    """A model that scores items for histories, and the same for training.

    Both read `history`, `[B, (sessions), (items)]`, and `items`, `[C]`, which
    all histories of the batch are scored against, and give `[B, C]`. The one
    for training reads `log_in_batch`, `[C]`, too: see `training_batches`.
    """
    history = keras.Input(
        (None, None), dtype="int64", ragged=True, name="history"
    )
    items = keras.Input((), dtype="int64", name="items")
    # An item that training has not seen reads what it would start with: that
    # is what the model read for every item when it was new.
    item = lodestar.layers.DynamicEmbedding(
        DIM, default_row="initial", seed=seed, name="item"
    )
    item_bias = lodestar.layers.DynamicEmbedding(
        1, embeddings_initializer="zeros", seed=seed, name="item_bias"
    )
    rows = item(history)  # [B, (sessions), (items), DIM]
    sessions = lodestar.sequence.pool(rows, "mean")  # [B, (sessions), DIM]
    taste = lodestar.sequence.pool(sessions, "mean")  # [B, DIM]
    # Zeros where a session has just begun: an empty sequence gives zeros.
    current = lodestar.sequence.pool(sessions, "last")  # [B, DIM]
    hidden = keras.layers.Dense(4 * DIM, activation="relu", name="hidden")(
        ops.concatenate([taste, current], axis=1)
    )
    user = keras.layers.Dense(DIM, name="user")(hidden)
    scores = ops.matmul(user, ops.transpose(item(items)))
    scores = scores + ops.transpose(item_bias(items))

    log_in_batch = keras.Input((), name="log_in_batch")
    features = {"history": history, "items": items}
    return (
        keras.Model(features, scores, name="scorer"),
        keras.Model(
            {**features, "log_in_batch": log_in_batch},
            scores - ops.expand_dims(log_in_batch, 0),
            name="training",
        ),
    )


class Recommender(keras.Model):
    """Gives the best items of a catalogue: what is exported.

    Args:
        scorer: Of `build_models`.
        catalogue: Items `[C]`.
        k: How many to give.
    """

    def __init__(self, scorer: keras.Model, catalogue: np.ndarray, k: int):
        super().__init__(name="recommender")
        self._scorer = scorer
        self._k = min(k, len(catalogue))
        self._catalogue = self.add_weight(
            shape=catalogue.shape,
            dtype="int64",
            initializer="zeros",
            trainable=False,
            name="catalogue",
        )
        self._catalogue.assign(catalogue)

    def call(self, history):
        """`[B, (sessions), (items)]` -> items and their scores, `[B, k]`."""
        catalogue = tf.convert_to_tensor(self._catalogue)
        scores = self._scorer({"history": history, "items": catalogue})
        best = tf.math.top_k(scores, self._k)
        return {
            "items": tf.gather(catalogue, best.indices),
            "scores": best.values,
        }


def run(options: types.SimpleNamespace) -> int:
    """Does what the command line asks; returns the exit code.

    Raises:
        DataError: The output folder cannot be used.
        OSError, tf.errors.OpError: Nor in the end; or a gradient is not finite.
    """
    exported = options.output / "saved_model"
    _make_room(exported)
    keras.utils.set_random_seed(options.seed)
    log = session_log.generate(options.users, options.items, options.seed)
    nested = lodestar.ragged.LoDTensor.from_lengths(
        log.items, [log.sessions_of_users, log.items_of_sessions]
    )
    histories = Histories(nested)
    events = np.arange(len(log.items))
    session = log.session_of_item
    held_out = log.days[session] >= session_log.DAYS - HELD_OUT_DAYS
    train, test = events[~held_out], events[held_out]
    print(
        f"{len(events):,} events in {len(log.days):,} sessions of "
        f"{options.users:,} users; the last {HELD_OUT_DAYS} of "
        f"{session_log.DAYS} days are held out: {len(test):,} events.",
        flush=True,
    )

    scorer, model = build_models(options.seed)
    model.compile(
        optimizer=lodestar.optimizers.Adam(options.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batches = training_batches(
        histories, train, options.batch_size, options.seed
    )
    model.fit(batches, epochs=options.epochs, shuffle=False, verbose=2)

    # What the model knows: every item that it was trained on.
    catalogue = model.get_layer("item").table.export().ids.numpy()
    found = _evaluate(log, train, test, catalogue, histories, scorer)
    fresh = np.mean(~np.isin(log.items[test], catalogue))
    first = np.append(True, session[1:] != session[:-1])[test]
    _show(found, first, len(catalogue), fresh)
    return _export(
        Recommender(scorer, catalogue, TOP_K),
        exported,
        histories.before(tf.constant(test[:_SERVED_USERS])),
    )


def _evaluate(
    log: session_log.SessionLog,
    train: np.ndarray,
    test: np.ndarray,
    catalogue: np.ndarray,
    histories: Histories,
    scorer: keras.Model,
) -> dict[str, ranking.Ranking]:
    """Ranks the catalogue for each held-out event, in every way there is."""
    session = log.session_of_item
    user = log.user_of_session[session]
    counts = ranking.popularity(log.items[train], catalogue)
    co_occurrence = ranking.CoOccurrence(
        log.items[train], session[train], catalogue
    )

    def by_popularity(events):
        return np.tile(counts, (len(events), 1))

    def by_last_item(events):
        before = np.maximum(events - 1, 0)
        return co_occurrence.scores(
            log.items[before],
            (before < events) & (user[before] == user[events]),
        )

    candidates = tf.constant(catalogue)

    def by_model(events):
        history = histories.before(tf.constant(events))
        return scorer({"history": history, "items": candidates}).numpy()

    all_items = log.catalogue.keys
    order = np.argsort(all_items)

    def by_what_is_true(events):
        return log.probabilities(events)[:, order]

    def rank(scores, candidates=catalogue):
        return ranking.rank(scores, test, log.items[test], candidates)

    return {
        "popularity": rank(by_popularity),
        "co-occurrence with the last item": rank(by_last_item),
        "model": rank(by_model),
        "best that any model can be": rank(by_what_is_true, all_items[order]),
    }


def _show(
    found: dict[str, ranking.Ranking],
    first: np.ndarray,
    known: int,
    fresh: float,
) -> None:
    print(
        f"\nThe next of {known:,} items; {fresh:.1%} of the held-out ones were "
        "never trained on.\n"
        "First items of sessions have only the sessions before to go by.\n"
    )
    columns = f"hit rate@{TOP_K}", "of first items", "MRR"
    width = max(map(len, found))
    print(" " * width, *(f"{name:>14}" for name in columns))
    for name, ranks in found.items():
        numbers = (
            ranks.hit_rate(TOP_K),
            ranks.hit_rate(TOP_K, first),
            ranks.mean_reciprocal_rank,
        )
        print(f"{name:<{width}}", *(f"{number:14.4f}" for number in numbers))


def _export(
    recommender: keras.Model, path: pathlib.Path, history: tf.RaggedTensor
) -> int:
    """Writes the SavedModel, and compares what it serves with the model."""
    lodestar.export.save(
        recommender,
        path,
        inputs={"history": tf.RaggedTensorSpec([None, None, None], tf.int64)},
    )
    # Not the items: those of nearly equal scores may change places.
    try:
        found = lodestar.export.verify(
            recommender, path, history, _TOLERANCE, outputs=["scores"]
        )
    except lodestar.export.MismatchError as error:
        print(f"\n{path} is not the model: {error}")
        return 1
    print(
        f"\n{path}: the scores served to {found.examples} histories differ by "
        f"at most {found.max_difference:.1e}."
    )
    return 0


def _make_room(path: pathlib.Path) -> None:
    """Makes the folder above `path`, which is to be new or a SavedModel."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be made: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"{folder}: cannot be written")
    if path.exists() and not (path / "saved_model.pb").exists():
        raise DataError(f"{path}: is no SavedModel, and would be replaced")


_COMMAND = Command(
    "sequence_recommender",
    [
        *(
            click.Option(
                [flag],
                type=click.IntRange(least, most),
                default=default,
                metavar="N",
                help=text,
            )
            for flag, least, most, default, text in (
                ("--users", 100, 100_000, 6000, "Users of the generated log."),
                ("--items", 100, 100_000, 4000, "Items of the generated log."),
                ("--epochs", 1, 1000, 4, "Passes over the training events."),
                ("--batch-size", 2, 65536, 512, "Events per step."),
                ("--seed", 0, _MAX_SEED, 0, "Seed of everything random."),
            )
        ),
        click.Option(
            ["--learning-rate"],
            type=positive,
            default=0.005,
            metavar="X",
            help="Learning rate of Adam.",
        ),
        click.Option(
            ["--output"],
            type=path,
            default="sequence_recommender_output",
            metavar="DIR",
            help="Folder for the exported model.",
        ),
    ],
    help="Trains a model that recommends the next item from what a user did in "
    "this session and in those before, on a generated log; compares it with "
    "counting, exports and serves it.",
)


def parse(arguments: list[str] | None = None) -> types.SimpleNamespace:
    """Parses the command line; ends the process where it is not valid."""
    params = lodestar._command_line.parse(_COMMAND, arguments).params
    return types.SimpleNamespace(**params)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    # `bazel run` starts elsewhere than where the user stands.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    options = parse(arguments)
    return lodestar._command_line.run(
        "sequence_recommender",
        lambda: run(options),
        errors=INPUT_ERRORS,
        interrupted="\nInterrupted.",
    )


if __name__ == "__main__":
    sys.exit(main())
