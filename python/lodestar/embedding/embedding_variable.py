"""A table of embeddings that grows with the ids it sees."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._arguments import explained
from lodestar._checks import check_eager, check_flag, check_name
from lodestar._library import gen_ops
from lodestar._typing import AnyTensor, AnyTensorLike, Combiner, OptimizerLike
from lodestar.embedding import bags as bags_lib
from lodestar.embedding import eviction as eviction_lib
from lodestar.embedding import ids as ids_lib
from lodestar.embedding import (
    initializers,
    lookup_arguments,
    placements,
    policies,
    saved_state,
    strategies,
    table_parts,
)
from lodestar.embedding import stats as stats_lib
from lodestar.embedding import workers as workers_lib
from lodestar.embedding.lookup_arguments import LoadMode, refuse_sizes
from lodestar.embedding.rows import EmbeddingRows, InspectedIds
from lodestar.embedding.table_parts import ExportedTable, TablePart
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops.embedding_collection_ops import FeatureInputs
from lodestar.ops.flat_values import flat_values, map_flat


@keras.saving.register_keras_serializable(package="lodestar")
class EmbeddingVariable(TableVariable):
    """An embedding table over int64 ids, which adds a row for each new id.

    The whole int64 range is valid; narrower integers are widened and uint64 ids
    keep their bits. The initial value of a row depends only on the seed, the table
    name, the id and the column.

    A table is a trainable `keras.Variable` of shape (rows, output_dim). Make it an
    attribute of the layer or model that uses it, or an item of a list, tuple or
    dict there, so that Keras trains, freezes and saves it.

    >>> table = lodestar.EmbeddingVariable(4, name="user")
    >>> table.lookup([7, -1], training=True).shape
    TensorShape([2, 4])
    >>> int(table.size())
    2

    Args:
        output_dim: Embedding dimension, 1 to 65536.
        embeddings_initializer: `"zeros"`, `"ones"`, `"uniform"` (+-0.05),
            `"normal"` (stddev 0.05), `"truncated_normal"`, or a Keras Zeros,
            Ones, Constant, RandomUniform, RandomNormal or TruncatedNormal, whose
            seed is ignored.
        seed: Integer. Tables with different seeds or names have different
            initial values. Defaults to 0, or without a `name` to a random seed
            that `keras.utils.set_random_seed` makes repeatable. A pair
            (seed, salt), as in `get_config`, also replaces the hash of `name`.
            Saved with the table.
        default_row: Value for an id without a row: `"zeros"`, `"initial"` (its
            initial value), a vector `[output_dim]`, or `SharedRows(n)`, which
            picks one of n trained rows.
        dtype: Dtype of the rows and lookups: `tf.float32`, `tf.float16` or
            `tf.bfloat16`. Rows of 16 bits are pooled and updated
            in float32, with float32 optimizer slots, and then rounded.
        rounding: How updates round rows of 16 bits: to `"nearest"`, or
            `"stochastic"`, which keeps small updates on average.
        num_shards: Number of shards with their own locks, 1 to 4096. Results do
            not depend on it. Defaults to the LODESTAR_NUM_SHARDS environment
            variable, else 16.
        admission: When a new id gets a row: `MinCount` or `CountingBloom`.
            Defaults to its first occurrence.
        eviction: Which rows training removes: `MaxRows`, `MaxAge`, `MinNorm`,
            `MinFrequency`, or a list of these. Defaults to none.
        on_evict: Function that `evict` calls with the ids and rows it removed,
            if any, as NumPy arrays. Settable, and not saved. It gets no rows that
            training evicts, so `eviction` may then only be `MaxRows`.
        optimizer: Keras optimizer, or its name, that trains this table only,
            with its own learning rate and schedule. Defaults to the optimizer
            of the model.
        devices: CPUs and GPUs to partition the rows over by a hash of the id,
            such as `"/job:ps/task:0"`, `"/CPU:1"` or `"/GPU:0"`. Defaults to
            this process; inside `tf.device("/GPU:0")` to that GPU; under a
            `tf.distribute.ParameterServerStrategy` to all of its servers.
        name: Name of the table. Defaults to `embedding_variable_<n>`.

    Raises:
        ValueError: An argument is invalid.
        TypeError: More than one positional argument.
        tf.errors.InvalidArgumentError: A number exceeds its limit.
        NotImplementedError: `devices` with `SharedRows`, or an unsupported
            `tf.distribute` strategy or option (docs/distributed.md lists them).
        tf.errors.FailedPreconditionError: A task in `devices` has not loaded
            this version of lodestar.
    """

    # The parts of the table: one per device, or a single one.
    _parts: tuple[TablePart, ...]

    @explained(surplus=functools.partial(refuse_sizes, "EmbeddingVariable"))
    def __init__(
        self,
        output_dim: int,
        *,
        embeddings_initializer: initializers.Initializer = "uniform",
        seed: int | Sequence[int] | None = None,
        default_row: lookup_arguments.DefaultRow = "zeros",
        dtype: tf.DType | str = tf.float32,
        rounding: lookup_arguments.Rounding = "nearest",
        num_shards: int | None = None,
        admission: policies.Admission | None = None,
        eviction: policies.Evictions = None,
        on_evict: eviction_lib.OnEvict | None = None,
        optimizer: OptimizerLike | None = None,
        devices: Sequence[str] | None = None,
        name: str | None = None,
    ):
        given_name = check_name(name) if name else None
        name = given_name or (
            f"embedding_variable_{keras.backend.get_uid('embedding_variable')}"
        )
        self._table_name = name
        self._row_dtype = lookup_arguments.row_dtype(dtype)
        self._rounding = lookup_arguments.rounding(rounding, self._row_dtype)
        self._seed, self._salt = initializers.first_value_words(
            seed, given_name
        )
        self.output_dim = lookup_arguments.check_dim(output_dim)
        self._row_initializer = embeddings_initializer
        self._attrs = initializers.initializer_attrs(embeddings_initializer)
        self._num_shards = num_shards
        self._shard_count = lookup_arguments.shard_count(num_shards)
        self.admission = policies.check_admission(admission)
        strategies.check_can_hold(name, self.admission)
        self._eviction = policies.check_eviction(eviction)
        self.on_evict = on_evict
        self._missing, self._missing_values, self._shared_rows = (
            lookup_arguments.missing_rows(
                default_row, self.output_dim, self._row_dtype
            )
        )
        with tf.init_scope():
            self._placement = placements.choose(devices)
            evictions = self._placement.evictions(self)
            self._parts = tuple(
                TablePart(
                    name,
                    device,
                    self._attributes(own),
                    self._missing_values,
                )
                for device, own in zip(
                    self.devices or [None], evictions, strict=True
                )
            )
            # Inputs of lookups that no tape records.
            self._eager_constants = (
                tf.zeros([0, self.output_dim], self._row_dtype),
                tf.constant(self._missing_values),
            )
        super().__init__(name, optimizer)

    def _attributes(
        self, eviction: Sequence[policies.Eviction]
    ) -> dict[str, Any]:
        """Returns the attributes of the EmbeddingVariable op."""
        return {
            "dim": self.output_dim,
            "dtype": self._row_dtype,
            "rounding": self._rounding,
            "initializer": self._attrs.kind,
            "initializer_a": self._attrs.a,
            "initializer_b": self._attrs.b,
            "seed": self._seed,
            "init_salt": self._salt,
            "num_shards": self._shard_count,
            "table_name": self.name,
            **policies.attributes(
                [self.admission, self._shared_rows, *eviction]
            ),
        }

    def _saved_tensors(self) -> dict[str, tf.Tensor]:
        with_slots = saved_state.with_optimizer_slots()
        return saved_state.to_checkpoint(
            self.name, self._export_all(with_slots)
        )

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        return self._import_all(saved_state.from_checkpoint(self, saved))

    def _capture_for_checkpoint(self, captures: Any) -> None:
        self._placement.check_async_checkpoint(self)
        super()._capture_for_checkpoint(captures)

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        children = super()._saved_children(save_type)
        if save_type == "savedmodel":
            self._placement.check_saved_model(self)
            # Saved lookups read these; the table itself saves the rows.
            children["hook"] = self.value
            for number, part in enumerate(self._parts):
                children[f"rows_{number}" if number else "rows"] = part
        return children

    def _exported(self, exported: Mapping[Any, Any]) -> ExportedTable:
        return ExportedTable(self, exported)

    @property
    def devices(self) -> tuple[str, ...] | None:
        """The devices that hold the rows, or None for this process."""
        return self._placement.devices

    @property
    def _workers(self) -> workers_lib.Workers | None:
        """The workers that share the rows, if several do."""
        return self._placement.workers

    @property
    def resource_handle(self) -> tf.Tensor:
        """Resource handle of the table in this process.

        Raises:
            NotImplementedError: The rows are on `devices`.
        """
        if self.devices is not None:
            raise NotImplementedError(
                f"{self!r} is on {list(self.devices)}, so no single handle has "
                "its rows. Use the methods of the table."
            )
        return self._parts[0].resource_handle

    @property
    def _is_sharded(self) -> bool:
        """Whether `devices` or several workers hold the rows."""
        return self.devices is not None or self._workers is not None

    @property
    def _shared_row_count(self) -> int:
        """The number of `SharedRows`, or 0."""
        return 0 if self._shared_rows is None else self._shared_rows.n

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, and whether the table is trainable."""
        optimizer = self.optimizer
        initializer = initializers.serialize(self._row_initializer)
        return {
            "output_dim": self.output_dim,
            "embeddings_initializer": initializer,
            "seed": [self._seed, self._salt],
            "default_row": lookup_arguments.default_row_config(
                self._missing, self._missing_values, self._shared_rows
            ),
            "dtype": self.dtype,
            "rounding": self._rounding,
            "num_shards": self._num_shards,
            "admission": policies.serialize(self.admission),
            "eviction": policies.serialize(self._eviction) or None,
            "optimizer": optimizer and keras.optimizers.serialize(optimizer),
            "devices": self._placement.config(),
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EmbeddingVariable":
        """Creates an empty table from the result of `get_config`."""
        config = dict(config)
        trainable = config.pop("trainable", True)
        table = cls(**config)
        table.trainable = trainable
        return table

    @property
    def step(self) -> tf.Tensor:
        """The current step, an int64 scalar.

        Several lookups of an id in one step count once, except under
        `MinCount(unit="occurrence")`. Applying gradients advances the step by one, or
        to the optimizer's iterations if these are higher, unless `set_step` was called.
        """
        return self._parts[0].call(gen_ops.lodestar_embedding_step)

    def set_step(self, step: AnyTensorLike | None) -> None:
        """Sets `step`, such as to a day or a Unix time, the unit of ages.

        Evicts rows as an optimizer step does, unless the table is frozen. Applying
        gradients no longer advances the step. Saved with the table.

        Args:
            step: Integer scalar, or None to let the optimizer advance the step again.
        """
        if step is None:
            self._each(gen_ops.lodestar_embedding_release_step)
            return
        step = ids_lib.to_int64(step, name="step")
        set_step = gen_ops.lodestar_embedding_set_step
        self._each(set_step, step, evicts=self.trainable)

    def lookup(
        self,
        ids: AnyTensorLike,
        training: bool | None = None,
        weights: AnyTensorLike | None = None,
        combiner: Combiner | None = None,
        grow: bool = True,
        count: bool = True,
        padding_id: int | None = None,
        default_id: int | None = None,
        admit: bool | None = None,
        padding_counts: bool = False,
    ) -> tf.Tensor | tf.RaggedTensor:
        """Looks up rows, or bags of rows combined into one; differentiable.

        Args:
            ids: Integers: dense, ragged of any depth, or sparse. Sparse ids need a
                combiner and indices in row-major order.
            training: If True, counts the ids, adds rows for new ids that `admission`
                accepts, and lets gradients train the rows. If False, writes nothing
                and drops gradients of ids without a row. Defaults to True while a
                gradient tape records. False if `table.trainable` is.
            weights: Numbers in the layout of `ids`, for sum, mean and sqrtn.
            combiner: `"sum"`, `"mean"` (sum(w x) / sum(w)), `"sqrtn"`
                (sum(w x) / sqrt(sum w^2)), `"max"`, `"first"` or `"last"`, over the
                innermost axis of `ids`. An empty bag is zeros.
            grow: Whether a training lookup may add rows.
            count: Whether a training lookup counts ids.
            padding_id: Id that is read as zeros and has no row and no gradient.
            default_id: With a combiner, the id whose row replaces an empty bag.
            admit: Overrides `admission` if training. If True, every new id
                gets a row; if False, new ids are only counted.
            padding_counts: With `"mean"`: whether padding counts as rows of zeros.

        Returns:
            A tensor of the table's dtype and shape `ids.shape + [D]`, ragged if
            `ids` is. With a combiner, the innermost axis of `ids` is gone.

        Raises:
            ValueError: An argument is invalid.
            tf.errors.InvalidArgumentError: The layout of `weights` or the order of
                sparse indices is wrong, which is only known when the op runs.
        """
        ids = ids_lib.to_int64(ids)
        lookup_arguments.check_lookup(
            ids, training, weights, combiner, padding_id, default_id
        )
        grow, count = check_flag("grow", grow), check_flag("count", count)
        admit = lookup_arguments.check_admit(admit, grow)
        training = self._trains(training)
        feature = lookup_arguments.feature_attrs(
            combiner, padding_id, default_id, padding_counts
        )
        options = {
            "insert": training and grow,
            "count": training and count,
            "admit": admit,
        }
        if combiner is None:
            return map_flat(
                lambda x: self._placement.lookup(
                    self, feature, FeatureInputs(x), **options
                ),
                ids,
            )
        bags = bags_lib.to_bags(ids, weights)
        inputs = FeatureInputs(*bags[:3])
        pooled = self._placement.lookup(self, feature, inputs, **options)
        if padding_counts:
            pooled = bags_lib.mean_with_padding(pooled, *inputs)
        return bags.restore(pooled)

    def _collection_inputs(self) -> tuple[tf.Tensor, tf.Tensor, str]:
        """Returns the hook, the default row and its kind, for lookup ops.

        The hook is the `[0, output_dim]` value, which receives the table's gradient.
        """
        recorded = _private.tape_may_record()
        eager = tf.executing_eagerly()
        if recorded or not eager:
            self._meet_model()
        if recorded:
            self._record()
        if not eager:
            hook = tf.convert_to_tensor(self.value)
            return hook, tf.constant(self._missing_values), self._missing
        hook, missing_row = self._eager_constants
        # Reading a variable, which tf.recompute_grad sees, costs as much as a lookup.
        if recorded or _private.tape_is_stopped():
            hook = tf.convert_to_tensor(self.value)
        return hook, missing_row, self._missing

    def find(self, ids: AnyTensorLike) -> tuple[AnyTensor, AnyTensor]:
        """Reads rows without writing anything.

        Args:
            ids: Integers, dense or ragged.

        Returns:
            The rows, of shape `ids.shape + [output_dim]` and zeros for ids without a
            row, whatever `default_row` is; and a bool tensor of shape `ids.shape`
            that is True for ids with a row.
        """
        ids = ids_lib.to_int64(ids)
        if isinstance(ids, tf.SparseTensor):
            raise ValueError("`ids` is sparse; `find` takes dense or ragged.")
        rows, found = self._placement.find(self, flat_values(ids))
        return map_flat(lambda _: rows, ids), map_flat(lambda _: found, ids)

    def _each(
        self,
        op: Callable[..., Any],
        *inputs: Any,
        of_parts: Sequence[Sequence[Any]] | None = None,
        **attrs: Any,
    ) -> list[Any]:
        """Runs `op` on each part, with its item of `of_parts` as last inputs."""
        return table_parts.each(
            op.__name__.removeprefix("lodestar_embedding_"),
            self._parts,
            lambda i, part: part.call(
                op, *inputs, *(of_parts[i] if of_parts else ()), **attrs
            ),
        )

    def insert_or_assign(self, ids: AnyTensorLike, rows: AnyTensorLike) -> None:
        """Sets the rows of `ids`, adding missing ones.

        If an id is repeated, its last row wins. Optimizer slots and frequencies are
        kept. Admission does not apply. Under `MaxRows`, new ids without room are
        refused and counted in `stats()`.

        Args:
            ids: Integers `[N]`.
            rows: `[N, output_dim]`, cast to the table's dtype.
        """
        ids = ids_lib.to_dense_int64(ids, "insert_or_assign")
        rows = ids_lib.to_numbers(rows, "rows", self._row_dtype)
        self._each(
            gen_ops.lodestar_embedding_insert_or_assign,
            of_parts=self._placement.divide_rows(ids, rows),
        )

    def remove(self, ids: AnyTensorLike) -> tf.Tensor:
        """Removes the rows of dense `ids` and returns how many existed."""
        ids = tf.reshape(ids_lib.to_dense_int64(ids, "remove"), [-1])
        divided = self._placement.divide_rows(ids, ids)
        return tf.add_n(
            self._each(
                gen_ops.lodestar_embedding_remove,
                of_parts=[(own,) for own, _ in divided],
            )
        )

    def size(self) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar."""
        self._check_followed()
        return self._count()

    def _count(self) -> tf.Tensor:
        return tf.add_n(self._each(gen_ops.lodestar_embedding_size))

    @overload
    def evict(
        self, policy: policies.Evictions = None, *, return_rows: Literal[True]
    ) -> tuple[tf.Tensor, tf.Tensor]: ...

    @overload
    def evict(
        self, policy: policies.Evictions = None, *, return_rows: bool = False
    ) -> Any: ...

    def evict(
        self, policy: policies.Evictions = None, *, return_rows: bool = False
    ) -> Any:
        """Removes the rows that a policy selects, except those used in this step.

        Scans all rows, unless it evicts by `MaxAge` in a table with `MaxAge` or LRU.

        Args:
            policy: `MaxAge`, `MinFrequency`, `MinNorm`, `MaxRows` (down to that many
                rows), or a list of these. Defaults to the table's `eviction`.
            return_rows: Whether to return the rows. They are read and removed
                atomically, on each of `devices`.

        Returns:
            The number of rows removed, an int64 scalar; or with `return_rows` their
            ids `[N]`, ascending, and rows `[N, output_dim]`.

        Raises:
            ValueError: An argument is invalid.
        """
        return_rows = check_flag("return_rows", return_rows)
        return eviction_lib.evict(self, policy, return_rows)

    def decay_frequencies(self, rate: float) -> None:
        """Multiplies all frequencies by `rate`, rounding down.

        The frequencies of ids used in this step stay above 0.

        Args:
            rate: Factor from 0 to 1.

        Raises:
            tf.errors.InvalidArgumentError: `rate` is out of range.
        """
        rate = tf.cast(rate, tf.float64)
        self._each(gen_ops.lodestar_embedding_decay_frequencies, rate)

    def clear(self) -> None:
        """Removes all rows, after a running snapshot has ended.

        Also clears ids that wait for admission and the filter of `CountingBloom`, and
        resets `SharedRows`. `step` and the event counts of `stats()` are kept.
        """
        self._each(gen_ops.lodestar_embedding_clear)

    def compact(self) -> tf.Tensor:
        """Returns the memory of removed rows to the system.

        Fills the gaps with other rows and frees the end, with excess memory of the
        index and of ids that wait for admission. Other threads can look up and update
        resident ids at the same time; calls that add, remove or reorder rows wait about
        a millisecond per shard.

        >>> table.remove(old_ids)
        >>> table.compact()

        Returns:
            The number of bytes by which `stats()["bytes"]` decreases, an int64
            scalar.

        Raises:
            tf.errors.ResourceExhaustedError: Out of memory for a smaller index. Rows
                and counters are unchanged.
        """
        return tf.add_n(self._each(gen_ops.lodestar_embedding_compact))

    def frequency(self, ids: AnyTensorLike) -> AnyTensor:
        """Returns the int64 frequency of each id, 0 without a row.

        Counts the steps that used the id, or its occurrences under
        `MinCount(unit="occurrence")`, reduced by `decay_frequencies`.
        """
        return map_flat(
            lambda flat: table_parts.frequencies(self, flat),
            ids_lib.to_int64(ids),
        )

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """Returns counters of the table; eager only.

        Args:
            reset: Whether to reset the event counts to 0.

        Returns:
            A dict of current sizes (such as rows, capacity, pending and bytes with
            its parts) and of event counts since the table was made or reset (such
            as hits, misses, inserts, evicted and read_misses). docs/memory.md lists
            all keys.
        """
        check_eager("stats")
        found = self._each(gen_ops.lodestar_embedding_stats, reset=reset)
        of_parts = [
            (values.numpy(), shards.numpy()) for values, shards in found
        ]
        return stats_lib.by_name(self.devices, of_parts)

    def inspect(self, ids: AnyTensorLike) -> InspectedIds:
        """Returns everything the table holds for some ids; eager only. Changes nothing.

        Args:
            ids: Integers `[N]`.
        """
        check_eager("inspect")
        ids = ids_lib.to_dense_int64(ids, "inspect")
        return table_parts.inspect(self, ids)

    def export(self, optimizer_slots: bool = True) -> EmbeddingRows:
        """Returns all rows and their metadata in ascending id order; eager only.

        Args:
            optimizer_slots: Whether to include the optimizer slots.
        """
        check_eager("export")
        return saved_state.to_rows(self._export_all(optimizer_slots))

    def load_rows(
        self, rows: EmbeddingRows, mode: LoadMode = "replace"
    ) -> None:
        """Loads rows, such as the result of `export`.

        Args:
            rows: Rows with unique ids in any order, cast to the table's dtype.
                Without frequencies they count from 0; without last_seen they were
                last seen in the current step; without optimizer slots these are
                reset, also for rows that a merge overwrites.
            mode: `"replace"` replaces the content of the table and needs memory for
                both until it is done; it clears ids that wait for admission.
                `"merge"` adds rows and overwrites those with equal ids. The table's
                step, seed and salt are kept.

        Raises:
            ValueError: `mode` is unknown, or optimizer slots lack the name of their
                optimizer or their initial values.
            tf.errors.InvalidArgumentError: Duplicate ids or wrong shapes.
            tf.errors.FailedPreconditionError: More rows than `MaxRows` allows;
                slots of another optimizer; for `"replace"`, a concurrent import,
                or no pause between optimizer steps for a minute.
            tf.errors.ResourceExhaustedError: Out of memory.
        """
        lookup_arguments.check_import(rows, mode)
        self._import_all(saved_state.from_rows(self, rows), mode)

    def __repr__(self) -> str:
        shape = f"output_dim={self.output_dim} dtype={self.dtype}"
        suffix = self._placement.suffix()
        return f"<EmbeddingVariable {self.name!r} {shape}{suffix}>"

    def _export_all(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """Returns the content by checkpoint name, optionally without rows."""
        self._check_followed()
        of_parts = table_parts.each(
            "export",
            self._parts,
            lambda _, part: part.export(optimizer_slots, with_rows),
        )
        own = table_parts.merged(of_parts)
        return self._placement.gather_content(self, own)

    def _import_all(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Loads what `_export_all` returned, atomically on each device."""
        self._slots.restored()
        of_parts = self._placement.divide_content(self, saved, mode)
        done = table_parts.each(
            "load_rows",
            self._parts,
            lambda i, part: part.import_(of_parts[i], mode),
        )
        return None if tf.executing_eagerly() else tf.group(*done)
