"""Steps that this process runs by Keras's own functions, in one or more replicas."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.embedding import workers
from lodestar.train.batch_sources import BatchSource

_KNOWN = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
# What a worker tells the others about the next batch.
_READ, _ENDED, _FAILED = range(3)


def ended(error: Exception) -> bool:
    """Returns whether an error of a step is the end of its iterator."""
    return isinstance(error, StopIteration) or (
        isinstance(error, tf.errors.OutOfRangeError)
        and "End of sequence" in str(error)
    )


class KerasTrainer:
    """Makes the steps of a model that is trained in this process.

    Args:
        model: Compiled.
        data: The training data, or those of an evaluation.

    Raises:
        NotImplementedError: The strategy of the model is not known.
    """

    def __init__(self, model: keras.Model, data: Any):
        self._model, self._data = model, data
        strategy = model.distribute_strategy
        self._shares = has_strategy(model)
        if self._shares and not isinstance(strategy, _KNOWN):
            names = ", ".join(known.__name__ for known in _KNOWN)
            raise NotImplementedError(
                f"Lodestar does not know {type(strategy).__name__}; use "
                f"{names}, ParameterServerStrategy or no strategy."
            )

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context for training, which changes errors if needed."""
        return contextlib.nullcontext()

    def training(self, steps: int | None) -> "KerasSteps":
        """Returns the steps of training."""
        return self._steps("data", self._data, steps, "train")

    def testing(self, name: str, data: Any, steps: int | None) -> "KerasSteps":
        """Returns the steps of an evaluation."""
        return self._steps(name, data, steps, "test")

    def build(self) -> str:
        """Makes the variables that Keras makes in the first step.

        Tracing `test_step` trains nothing.

        Returns:
            Why it failed, or "".
        """
        model = self._model

        @tf.function
        def step(data: Any) -> Any:
            return model.distribute_strategy.run(model.test_step, args=(data,))

        try:
            step.get_concrete_function(self._data.element_spec)
        except Exception as error:
            return f"`test_step` cannot be traced ({describe_error(error)})"
        return ""

    def _steps(
        self, name: str, data: Any, steps: int | None, kind: str
    ) -> "KerasSteps":
        model, restarts = self._model, kind == "test"
        if not self._shares:
            source = BatchSource(name, data, steps, restarts)
        else:
            source = _SharedSource(
                name, data, steps, restarts, model.distribute_strategy
            )
            self._prepare()
        return KerasSteps(model, source, kind, in_graph=not self._shares)

    def _prepare(self) -> None:
        """Makes what Keras would make in ways that not every strategy has."""
        model = self._model
        if model.train_function is None and model.test_function is None:
            self.build()
        if workers.of(model.distribute_strategy) is None:
            return
        if model.train_function is None:
            model.train_function = _function(model, model.train_step)
        if model.test_function is None:
            model.test_function = _function(model, model.test_step)


class KerasSteps:
    """Runs a model's `train_function` or `test_function`.

    Args:
        model: Compiled.
        source: Source of the batches.
        kind: `"train"` or `"test"`.
        in_graph: Whether the function itself takes the batches. That is faster.

    Attributes:
        total: Steps per epoch; None if unknown.
        at_once: The `steps_per_execution` of the model.
    """

    def __init__(
        self, model: keras.Model, source: BatchSource, kind: str, in_graph: bool
    ):
        self._model, self._source, self._in_graph = model, source, in_graph
        self._name = f"{kind}_function"
        getattr(model, f"make_{self._name}")()
        self.total = source.steps
        self.at_once: int = model.steps_per_execution
        self.begin, self.end = source.begin, source.end

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs steps, of which the last may be missing at the end of the data."""
        source, function = self._source, getattr(self._model, self._name)
        # The function would run `at_once` of them.
        if not self._in_graph or steps < self.at_once:
            batches, steps = source.take(steps)
            return steps, function(iter(batches)) if steps else {}
        for _ in range(2):
            try:
                return steps, function(source.iterator)
            except (StopIteration, tf.errors.OutOfRangeError) as error:
                if not ended(error):
                    raise
                if not source.restart():
                    break
        return 0, {}


class _SharedSource(BatchSource):
    """Batches of which each replica of a strategy gets an equal part, in order.

    TensorFlow's own distributed datasets read ahead, and their place cannot be
    saved. Every one of several workers reads all batches, and takes its part.
    """

    def __init__(
        self,
        name: str,
        dataset: Any,
        steps: int | None,
        restarts: bool,
        strategy: tf.distribute.Strategy,
    ):
        super().__init__(name, dataset, steps, restarts)
        self._strategy = strategy
        replicas = strategy.num_replicas_in_sync

        @tf.function(input_signature=[dataset.element_spec], autograph=False)
        def parts(batch: Any) -> list[Any]:
            return [_part(batch, i, replicas) for i in range(replicas)]

        self._parts = parts
        self._several = workers.of(strategy) is not None
        self._compared = False

    def begin(self) -> None:
        # The others would wait for a worker without a batch.
        if workers.any_of(self._strategy, self.steps == 0):
            raise ValueError(f"`{self._name}` has no batch.")
        super().begin()

    def _batches(self) -> Iterable[Any]:
        while True:
            said, failure, batch = _READ, None, None
            try:
                batch = next(self.iterator)
            except StopIteration:
                said = _ENDED
            except Exception as error:
                if not self._several:
                    raise
                said, failure = _FAILED, error
            if self._several:
                self._agree(said, failure)
            if said == _ENDED:
                return
            self._compare(batch)
            parts = self._parts(batch)
            yield self._strategy.experimental_distribute_values_from_function(
                # The default argument binds the parts of this batch.
                lambda context, parts=parts: parts[
                    context.replica_id_in_sync_group
                ]
            )

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
        batches = int(self.dataset.cardinality())
        workers.check_alike(self._strategy, {"number of batches": batches})


def has_strategy(model: keras.Model) -> bool:
    """Returns whether a model is made under a strategy."""
    with model.distribute_strategy.scope():
        return tf.distribute.has_strategy()


def _function(model: keras.Model, step: Callable[[Any], Any]) -> Any:
    """Returns what `make_train_function` of Keras would make for one worker.

    With several workers, Keras takes the mean of logs along an axis that numbers
    do not have.
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
        for data in iterator:
            logs = run(data)
        return logs

    return function


def _part(batch: Any, index: int, parts: int) -> Any:
    """Returns the examples of a replica; the last replica gets the remainder."""

    def part(value: Any) -> Any:
        size = (
            value.nrows()
            if isinstance(value, tf.RaggedTensor)
            else tf.shape(value, tf.int64)[0]
        )
        begin = size * index // parts
        return value[begin : size * (index + 1) // parts]

    return tf.nest.map_structure(part, batch)


def _fingerprint(batch: Any) -> bytes:
    """Returns a hash of all values of a batch."""
    values = [
        tf.io.serialize_tensor(value)
        for value in tf.nest.flatten(batch, expand_composites=True)
    ]
    return tf.fingerprint(tf.stack(values)).numpy().tobytes()
