"""Training that stops anywhere and goes on from its last checkpoint."""

import pathlib
import time

import keras
import tensorflow as tf
from errors import InputError

import lodestar
from examples import Examples
from lodestar.data import describe_error

# Rows of the tables get gradients of a few examples in a batch of hundreds: a
# start of Keras's 0.1 would drown them, and rare ids would hardly move.
_INITIAL_ACCUMULATOR = 1e-6


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Gives the model its optimizer, loss and metrics."""
    model.compile(
        optimizer=lodestar.optimizers.DynamicEmbeddingOptimizer(
            keras.optimizers.Adagrad(
                learning_rate, initial_accumulator_value=_INITIAL_ACCUMULATOR
            )
        ),
        loss="binary_crossentropy",
        metrics=[
            keras.metrics.AUC(name="auc"),
            keras.metrics.BinaryAccuracy(name="accuracy"),
            lodestar.metrics.BatchAUC(),
        ],
    )


class Checkpoints:
    """The checkpoints of a model, its optimizer and the steps it has done."""

    def __init__(self, model: keras.Model, folder: pathlib.Path):
        self._steps = tf.Variable(0, dtype=tf.int64)
        # A restore into a model without optimizer variables would be deferred
        # into the trace of the first step.
        model.optimizer.build(model.trainable_variables)
        self._checkpoint = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, steps=self._steps
        )
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, folder, max_to_keep=2
        )

    @property
    def steps(self) -> int:
        """Steps that the last checkpoint has done, or 0."""
        return int(self._steps)

    @property
    def latest(self) -> pathlib.Path:
        """What the names of the last checkpoint's files begin with."""
        return pathlib.Path(self._manager.latest_checkpoint)

    def restore(self) -> None:
        """Brings the last checkpoint back, if there is one.

        Raises:
            InputError: It is damaged, or of another model.
        """
        latest = self._manager.latest_checkpoint
        if not latest:
            state = pathlib.Path(self._manager.directory, "checkpoint")
            if state.exists():
                raise InputError(
                    f"{state}: does not say which checkpoint is the last one; "
                    "name another --output"
                )
            return
        try:
            status = self._checkpoint.restore(latest)
            status.assert_existing_objects_matched()
        except Exception as error:  # a damaged file can raise any
            text = describe_error(error)
            raise InputError(
                f"{latest}: cannot be restored into this model: {text[:200]}; "
                "name another --output"
            ) from error
        # Metrics of an epoch cut short are not wanted.
        status.expect_partial()

    def save(self, steps: int) -> None:
        """Writes a checkpoint; the one before stays until it is whole."""
        self._steps.assign(steps)
        self._manager.save(checkpoint_number=steps)


class _Progress(keras.callbacks.Callback):
    """Saves every few steps, and measures how fast the steps are."""

    def __init__(self, checkpoints, every, done, last):
        super().__init__()
        self._checkpoints = checkpoints
        self._every = every
        self._last = last
        self.done = self._first = done
        self.began = None

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        if self.began is None:  # the first step holds the tracing
            self.began = time.perf_counter()
            self._first = self.done
        if self._checkpoints and (
            self.done % self._every == 0 or self.done == self._last
        ):
            self._checkpoints.save(self.done)

    @property
    def steps_per_second(self) -> float | None:
        if self.done == self._first or self.began is None:
            return None
        return (self.done - self._first) / (time.perf_counter() - self.began)


class _Bar(keras.callbacks.ProgbarLogger):
    """A progress bar that knows the epochs of all calls of fit together."""

    def __init__(self, epochs: int):
        super().__init__()
        self._all_epochs = epochs

    def set_params(self, params):
        super().set_params({**params, "epochs": self._all_epochs})


def train(
    model: keras.Model,
    examples: Examples,
    epochs: int,
    checkpoints: Checkpoints | None = None,
    checkpoint_steps: int = 0,
) -> float | None:
    """Trains from the steps that `checkpoints` have done to the last one.

    Args:
        model: A compiled model.
        examples: What to train on.
        epochs: Passes over them in all.
        checkpoints: Where to save; None saves nothing and begins at step 0.
        checkpoint_steps: Steps between two checkpoints.

    Returns:
        Examples a second, checkpoints included; None for less than two steps.
    """
    done = checkpoints.steps if checkpoints else 0
    progress = _Progress(
        checkpoints, checkpoint_steps, done, epochs * examples.steps
    )
    first, skipped = divmod(done, examples.steps)
    for epoch in range(first, epochs):
        model.fit(
            examples.dataset(epoch).skip(skipped),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            callbacks=[progress, _Bar(epochs)],
        )
        skipped = 0
    speed = progress.steps_per_second
    return speed and speed * examples.count / examples.steps
