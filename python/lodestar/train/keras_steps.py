"""Steps in this process by Keras's own functions, in one or more replicas."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.embedding import workers
from lodestar.train.batch_sources import BatchSource
from lodestar.train.loop import Steps

_KNOWN = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
# A worker's message to the others about the next batch.
_READ, _ENDED, _FAILED = range(3)


class KerasSteps(Steps):
    """Runs a model's `train_function` or `test_function`.

    `name` is the name of the argument `data` in messages.
    """

    def __init__(
        self,
        model: keras.Model,
        name: str,
        data: Any,
        steps: int | None,
        kind: str = "train",
    ):
        self._model, self._data = model, data
        self._name = f"{kind}_function"
        # The function reads the batches itself, which is faster.
        self._in_graph = not has_strategy(model)
        arguments = (name, data, steps, kind == "test")
        if self._in_graph:
            source = BatchSource(*arguments)
        else:
            source = _SharedSource(model.distribute_strategy, *arguments)
            self._make_functions()
        super().__init__(source, model.steps_per_execution)
        getattr(model, f"make_{self._name}")()

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs steps; the last may be missing with `steps_per_execution`."""
        function = getattr(self._model, self._name)
        # The function would run `at_once` steps.
        if not self._in_graph or steps < self.at_once:
            batches, steps = self._source.take(steps)
            return steps, function(iter(batches)) if steps else {}
        for _ in range(2):
            try:
                return steps, function(self._source.iterator)
            except (StopIteration, tf.errors.OutOfRangeError) as error:
                if not ended(error):
                    raise
                if not self._source.restart():
                    break
        return 0, {}

    def build(self) -> str:
        """Traces `test_step`, which does not train."""
        model = self._model

        @tf.function
        def step(data: Any) -> Any:
            return model.distribute_strategy.run(model.test_step, args=(data,))

        try:
            step.get_concrete_function(self._data.element_spec)
        except Exception as error:
            return f"`test_step` cannot be traced ({describe_error(error)})"
        return ""

    def _make_functions(self) -> None:
        """Creates functions for strategies that Keras's own do not support."""
        model = self._model
        if model.train_function is None and model.test_function is None:
            self.build()
        if workers.of(model.distribute_strategy) is None:
            return
        if model.train_function is None:
            model.train_function = _function(model, model.train_step)
        if model.test_function is None:
            model.test_function = _function(model, model.test_step)


class _SharedSource(BatchSource):
    """Batches that are divided evenly among the replicas of a strategy, in order.

    TensorFlow's distributed datasets read ahead, and their position cannot be
    saved. Each of several workers reads all batches and uses its part.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *arguments: Any):
        super().__init__(*arguments)
        if not isinstance(strategy, _KNOWN):
            names = ", ".join(known.__name__ for known in _KNOWN)
            raise NotImplementedError(
                f"{type(strategy).__name__} is not supported. Use {names}, "
                "ParameterServerStrategy or no strategy."
            )
        self._strategy = strategy
        replicas = strategy.num_replicas_in_sync

        @tf.function(
            input_signature=[self.dataset.element_spec], autograph=False
        )
        def parts(batch: Any) -> list[Any]:
            return [_part(batch, i, replicas) for i in range(replicas)]

        self._parts = parts
        self._several = workers.of(strategy) is not None
        self._compared = False

    def begin(self) -> None:
        # The other workers would wait for one without a batch.
        if workers.any_of(self._strategy, self.steps == 0):
            raise self.no_batch()
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
            self._check_size(batch)
            parts = self._parts(batch)
            yield self._strategy.experimental_distribute_values_from_function(
                # The default argument binds the parts of this batch.
                lambda context, parts=parts: parts[
                    context.replica_id_in_sync_group
                ]
            )

    def _agree(self, own: int, failure: Exception | None) -> None:
        """Raises in all workers if some have a batch and others have not."""
        said = workers.numbers(self._strategy, own)
        if failure is not None:
            raise failure
        if _FAILED in said:
            raise RuntimeError(
                f"Worker {said.index(_FAILED)} could not read a batch; see its "
                "error."
            )
        if len(set(said)) > 1:
            raise ValueError(
                "The workers read different numbers of batches: worker "
                f"{said.index(_ENDED)} has no more, but worker "
                f"{said.index(_READ)} has. Give all workers the same data."
            )

    def _check_size(self, batch: Any) -> None:
        """Raises ValueError in all workers if a replica would get no example."""
        size = int(_size(tf.nest.flatten(batch)[0]))
        replicas = self._strategy.num_replicas_in_sync
        if size < replicas:
            raise ValueError(
                f"Each of the {replicas} replicas of "
                f"{type(self._strategy).__name__} needs an example of every batch, "
                f"because the mean loss of none is NaN, but a batch of "
                f"`{self._name}` has {size}. Use batches of at least {replicas}, "
                "and drop_remainder=True or another batch size if it is the last "
                "batch."
            )

    def _compare(self, batch: Any) -> None:
        """Raises ValueError unless all workers read the same first batch."""
        if self._compared or not self._several:
            return
        self._compared = True
        found = workers.exchange(self._strategy, _fingerprint(batch))
        if len(set(found)) > 1:
            raise ValueError(
                "The workers read different batches, but each trains on its part "
                "of every batch. Give all workers the same data in the same order; "
                "a shuffle needs a seed."
            )
        batches = int(self.dataset.cardinality())
        workers.check_alike(self._strategy, {"number of batches": batches})


def has_strategy(model: keras.Model) -> bool:
    """Returns whether a model was created under a strategy."""
    with model.distribute_strategy.scope():
        return tf.distribute.has_strategy()


def ended(error: Exception) -> bool:
    """Returns whether an error is the end of an iterator."""
    return isinstance(error, StopIteration) or (
        isinstance(error, tf.errors.OutOfRangeError)
        and "End of sequence" in str(error)
    )


def _function(model: keras.Model, step: Callable[[Any], Any]) -> Any:
    """Returns a replacement of Keras's `make_train_function` for one worker.

    With several workers, Keras averages logs along an axis that scalars lack.
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


def _size(value: Any) -> tf.Tensor:
    """Returns the number of examples of a part of a batch."""
    if isinstance(value, tf.RaggedTensor):
        return value.nrows()
    return tf.shape(value, tf.int64)[0]


def _part(batch: Any, index: int, parts: int) -> Any:
    """Returns the examples of a replica; the last one gets the remainder."""

    def part(value: Any) -> Any:
        size = _size(value)
        begin, end = size * index // parts, size * (index + 1) // parts
        if isinstance(value, tf.SparseTensor):
            of_row = value.dense_shape[1:]
            return tf.sparse.slice(
                value,
                tf.concat([[begin], tf.zeros_like(of_row)], 0),
                tf.concat([[end - begin], of_row], 0),
            )
        return value[begin:end]

    return tf.nest.map_structure(part, batch)


def _fingerprint(batch: Any) -> bytes:
    """Returns a hash of all values of a batch."""
    values = [
        tf.io.serialize_tensor(value)
        for value in tf.nest.flatten(batch, expand_composites=True)
    ]
    return tf.fingerprint(tf.stack(values)).numpy().tobytes()
