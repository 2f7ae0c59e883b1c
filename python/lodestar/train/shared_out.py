"""Batches of one dataset, shared out to the replicas of a strategy."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._errors import describe_error
from lodestar.embedding import workers

_KNOWN = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
# What a worker says of the next batch.
_READ, _ENDED, _FAILED = range(3)


class Phases(keras.callbacks.CallbackList):
    """Callbacks, and what Keras takes batches for.

    It looks at one to build a model, and drops it, before it trains or tests.

    Attributes:
        training: Whether the next batch of training is trained.
        testing: Whether that of a validation is evaluated.
        alike: What `fit` is given, by name, that workers are to have alike.
    """

    training = False
    testing = False
    alike: Mapping[str, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        self.training = True
        super().on_train_begin(logs)
        # A BackupAndRestore of each worker may have an epoch of its own.
        restored = {"restored epoch": _private.restored_epoch(self.model)}
        workers.check_alike(
            self.model.distribute_strategy, {**self.alike, **restored}
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        agree_to_stop(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        agree_to_stop(self.model)

    def on_train_end(self, logs: Any = None) -> None:
        self.training = False
        super().on_train_end(logs)

    def on_test_begin(self, logs: Any = None) -> None:
        self.testing = True
        super().on_test_begin(logs)

    def on_test_end(self, logs: Any = None) -> None:
        self.testing = False
        super().on_test_end(logs)


def agree_to_stop(model: keras.Model) -> bool:
    """Whether training is to stop, in all workers if in one of them."""
    stop = workers.any_of(model.distribute_strategy, bool(model.stop_training))
    if stop:
        model.stop_training = True
    return stop


class SharedOut(tf.data.Dataset, tf.distribute.DistributedDataset):
    """What `fit` of Keras takes in several replicas, in place of a dataset.

    Of a dataset TensorFlow would make an iterator that reads ahead, and whose
    place cannot be saved; and Keras would take a mean of the first batch, which
    not every strategy has. This one takes a batch of the dataset when a step
    asks for it; the replicas get equal parts of its examples, in order, as they
    would. Of several workers each reads all batches, and takes its part. It is
    a `tf.data.Dataset` for Keras, which takes it then as it is.

    Args:
        dataset: Whose batches they are.
        strategy: Of the replicas.
        wanted: Whether the next batch is for a step.

    Raises:
        NotImplementedError: A strategy of which nothing is known.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        wanted: Callable[[], bool],
    ):
        if not isinstance(strategy, _KNOWN):
            names = ", ".join(known.__name__ for known in _KNOWN)
            raise NotImplementedError(
                f"`fit` of Lodestar does not know {type(strategy).__name__}; "
                f"wanted {names} or none."
            )
        self._dataset = dataset
        self._strategy = strategy
        self._wanted = wanted
        replicas = strategy.num_replicas_in_sync

        @tf.function(input_signature=[dataset.element_spec], autograph=False)
        def parts(batch: Any) -> list[Any]:
            return [_part(batch, i, replicas) for i in range(replicas)]

        self._parts = parts
        self._several = workers.of(strategy) is not None
        self._compared = False
        super().__init__(tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        """That of the dataset: of whole batches."""
        return self._dataset.element_spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    def __iter__(self) -> Iterator[Any]:
        iterator = None
        while True:
            if not self._wanted():
                yield tf.nest.map_structure(_zeros, self.element_spec)
                continue
            said, failure, batch = _READ, None, None
            try:
                if iterator is None:
                    iterator = iter(self._dataset)
                batch = next(iterator)
            except StopIteration:
                said = _ENDED
            except Exception as error:
                if not self._several:
                    raise
                said, failure = _FAILED, error
            if self._several:
                self._agree(said, failure)
            if said == _ENDED:
                # As Keras wants it.
                raise tf.errors.OutOfRangeError(None, None, "no batch")
            self._compare(batch)
            yield self._of_replicas(self._parts(batch))

    def _agree(self, own: int, failure: Exception | None) -> None:
        """Raises in all workers unless all have a batch, or none has."""
        said = workers.numbers(self._strategy, own)
        if failure is not None:
            raise failure
        if _FAILED in said:
            raise RuntimeError(
                f"Worker {said.index(_FAILED)} could not read a batch; it "
                "raises the error."
            )
        if len(set(said)) > 1:
            raise ValueError(
                "The workers read different numbers of batches: worker "
                f"{said.index(_ENDED)} has no more, worker "
                f"{said.index(_READ)} has one. Give all the same data."
            )

    def _of_replicas(self, parts: list[Any]) -> Any:
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def _compare(self, batch: Any) -> None:
        """Raises ValueError unless all workers read the same first batch."""
        if self._compared or not self._several:
            return
        self._compared = True
        found = workers.exchange(self._strategy, _fingerprint(batch))
        if len(set(found)) > 1:
            raise ValueError(
                "The workers read different batches, of each of which they "
                "would train their part. Give all the same data in the same "
                "order: a shuffle needs a seed."
            )
        batches = int(self._dataset.cardinality())
        workers.check_alike(self._strategy, {"number of batches": batches})


def prepare(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Makes what Keras makes of a model before the first step of replicas.

    Args:
        model: Compiled, under a strategy.
        dataset: What it is to train on, or to be evaluated by.
    """
    if model.train_function is None and model.test_function is None:
        build(model, dataset)
    several = workers.of(model.distribute_strategy) is not None
    if several and model.train_function is None:
        model.train_function = _function(model, model.train_step)
    if several and model.test_function is None:
        model.test_function = _function(model, model.test_step)


def _function(model: keras.Model, step: Callable[[Any], Any]) -> Any:
    """As `make_train_function` of Keras makes it.

    That one takes the mean of logs along an axis, which numbers do not have,
    where there are several workers.
    """
    strategy = model.distribute_strategy

    def run(data: Any) -> Any:
        logs = strategy.run(step, args=(data,))
        return {
            name: strategy.reduce(tf.distribute.ReduceOp.MEAN, log, axis=None)
            for name, log in logs.items()
        }

    if not model.run_eagerly:
        run = tf.function(run, reduce_retracing=True, autograph=False)

    def function(iterator: Iterator[Any]) -> Any:
        for _, data in zip(range(model.steps_per_execution), iterator):
            logs = run(data)
        return logs

    return function


def build(model: keras.Model, dataset: tf.data.Dataset) -> str:
    """Makes the variables that Keras makes in the first step; or says why not.

    Tracing a step that trains nothing runs nothing of it.
    """
    strategy = model.distribute_strategy

    @tf.function
    def step(data: Any) -> Any:
        return strategy.run(model.test_step, args=(data,))

    try:
        step.get_concrete_function(dataset.element_spec)
    except Exception as error:
        return f"`test_step` cannot be traced ({describe_error(error)})"
    return ""


def cardinality(dataset: tf.data.Dataset) -> int | None:
    """Batches of a pass over the data; None: not known, or without end."""
    batches = int(dataset.cardinality())
    return batches if batches >= 0 else None


def _part(batch: Any, index: int, parts: int) -> Any:
    """The examples of a replica; where they are uneven, the last has more."""

    def part(value: Any) -> Any:
        size = (
            value.nrows()
            if isinstance(value, tf.RaggedTensor)
            else tf.shape(value, tf.int64)[0]
        )
        begin = size * index // parts
        return value[begin : size * (index + 1) // parts]

    return tf.nest.map_structure(part, batch)


def _zeros(spec: Any) -> Any:
    """A batch of one example a replica, of as few values as may be."""
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.zeros([size or 8 for size in spec.shape], spec.dtype)


def _fingerprint(batch: Any) -> bytes:
    """Of all values of a batch."""
    values = [
        tf.io.serialize_tensor(value)
        for value in tf.nest.flatten(batch, expand_composites=True)
    ]
    return tf.fingerprint(tf.stack(values)).numpy().tobytes()
