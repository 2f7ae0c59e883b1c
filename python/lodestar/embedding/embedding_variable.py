"""The embedding variable: a table of rows that grows with the ids it sees."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_eager, check_flag, check_name, check_size
from lodestar._library import gen_ops
from lodestar._resource import gpu_in_scope
from lodestar.embedding import bags as bags_lib
from lodestar.embedding import ids as ids_lib
from lodestar.embedding import (
    initializers,
    lookup_arguments,
    policies,
    saved_state,
    strategies,
)
from lodestar.embedding import stats as stats_lib
from lodestar.embedding import workers as workers_lib
from lodestar.embedding.rows import EmbeddingRows, InspectedIds
from lodestar.embedding.table_parts import ExportedTable, TablePart
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops
from lodestar.ops.flat_values import flat_values, map_flat

STATES = ("missing", "pending", "resident")


@keras.saving.register_keras_serializable(package="lodestar")
class EmbeddingVariable(TableVariable):
    """One row of `output_dim` numbers for each int64 id seen in training.

    A row's initial value depends on seed, salt, id and column only. Ids are
    the whole int64 range; narrower integers are widened, uint64 keeps its bits.

    A table is a trainable `keras.Variable`. Make it an attribute of the layer or
    model that looks it up, or part of a list, tuple or dict there: Keras then
    trains, freezes and saves it. Its `shape` is (rows, output_dim).

    >>> table = lodestar.EmbeddingVariable(4, name="user")
    >>> table.lookup([7, -1], training=True).shape
    TensorShape([2, 4])
    >>> int(table.size())
    2

    Args:
        output_dim: Numbers in a row, 1 to 65536.
        embeddings_initializer: `"zeros"`, `"ones"`, `"uniform"` (+-0.05),
            `"normal"` (stddev 0.05), `"truncated_normal"`, or a Keras Zeros,
            Ones, Constant, RandomUniform, RandomNormal or TruncatedNormal, whose
            seed is not used.
        seed: Integer; tables with different seeds or names have different
            initial values. Default: 0; without `name` a seed is drawn as Keras
            draws seeds, which `keras.utils.set_random_seed` repeats. A pair
            (seed, salt), as `get_config` returns it, also replaces the hash of
            `name`. Saved with the table.
        default_row: What an id without a row reads: `"zeros"`, `"initial"` (the
            value its row would start with), a vector `[output_dim]`, or
            `SharedRows(n)`: one of n trained rows.
        dtype: Of the rows and what is looked up: `tf.float32`, `tf.float64`,
            `tf.float16` or `tf.bfloat16`. Those of 16 bits are pooled and
            updated in float32 and rounded to the nearest; their optimizer
            slots are float32.
        num_shards: Parts that are written independently, 1 to 4096; default:
            LODESTAR_NUM_SHARDS of the environment, else 16. Never shows in a
            result.
        admission: Which sighting of an unseen id gives it a row: `MinCount`,
            `CountingBloom`; default: the first.
        eviction: Which rows go: `MaxRows`, `MaxAge`, `MinNorm`, or a list of
            these, any of which removes a row; default: none.
        optimizer: Keras optimizer of this table alone, or its name, used inside
            the wrapper; it keeps its own learning rate and schedule. Default:
            the wrapper's.
        devices: CPUs and GPUs that the rows are spread over by a hash of their
            ids, as `"/job:ps/task:0"` of a TensorFlow cluster, `"/CPU:1"` or
            `"/GPU:0"`; docs/distributed.md, docs/cuda.md. Default: rows lie in
            this process; within `with tf.device("/GPU:0"):` on that GPU; under
            a tf.distribute.ParameterServerStrategy on all of its servers.
        name: Default: `embedding_variable_<n>`, where Keras counts n.

    Raises:
        ValueError: An argument is not one of the above.
        TypeError: A second positional argument.
        tf.errors.InvalidArgumentError: A number is above what it may be.
        NotImplementedError: `devices` with SharedRows; or a strategy of
            `tf.distribute`, or an option under it, that docs/distributed.md
            lists as refused.
        tf.errors.FailedPreconditionError: A task of `devices` has not loaded
            this version of lodestar.
    """

    # What `devices` makes: a class that is built on this one.
    on_devices: type["EmbeddingVariable"]
    # The same, of several workers, and these.
    on_workers: type["EmbeddingVariable"]
    workers: workers_lib.Workers | None = None

    def __new__(
        cls, *args: Any, devices: Any = None, **kwargs: Any
    ) -> "EmbeddingVariable":
        if cls is EmbeddingVariable and workers_lib.of_strategy() is not None:
            if devices is not None:
                raise NotImplementedError(
                    "`devices` is given under MultiWorkerMirroredStrategy, "
                    "whose workers hold the rows. Leave it out."
                )
            return super().__new__(EmbeddingVariable.on_workers)
        if devices is None and not strategies.servers():
            if cls is not EmbeddingVariable or gpu_in_scope() is None:
                return super().__new__(cls)
        if issubclass(cls, EmbeddingVariable.on_devices):
            return super().__new__(cls)
        if cls is not EmbeddingVariable:
            raise TypeError(
                f"`devices` is not taken by {cls.__name__}, a class of your "
                "own; wanted lodestar.EmbeddingVariable."
            )
        return super().__new__(EmbeddingVariable.on_devices)

    def __init__(
        self,
        output_dim: int,
        *positional: Any,
        embeddings_initializer: initializers.Initializer = "uniform",
        seed: int | Sequence[int] | None = None,
        default_row: str
        | Sequence[float]
        | np.ndarray
        | policies.SharedRows = "zeros",
        dtype: Any = tf.float32,
        num_shards: int | None = None,
        admission: policies.Admission | None = None,
        eviction: policies.Eviction | Sequence[policies.Eviction] | None = None,
        optimizer: Any = None,
        devices: Sequence[str] | None = None,
        name: str | None = None,
    ):
        lookup_arguments.refuse_sizes(
            "EmbeddingVariable", "output_dim", output_dim, *positional
        )
        given_name = check_name(name) if name else None
        name = given_name or (
            f"embedding_variable_{keras.backend.get_uid('embedding_variable')}"
        )
        self._table_name = name
        self.row_dtype = lookup_arguments.row_dtype(dtype)
        self._seed, self._salt = initializers.first_value_words(
            seed, given_name
        )
        self.output_dim = check_size("output_dim", output_dim)
        self._row_initializer = embeddings_initializer
        self._attrs = initializers.initializer_attrs(embeddings_initializer)
        self._num_shards = num_shards
        self._shard_count = lookup_arguments.shard_count(num_shards)
        self.admission = policies.check_admission(admission)
        strategies.check_can_hold(name, self.admission)
        self._eviction = policies.check_eviction(eviction)
        if isinstance(default_row, Mapping):
            default_row = keras.saving.deserialize_keras_object(default_row)
        self._shared_rows = None
        if isinstance(default_row, policies.SharedRows):
            self._shared_rows = default_row
            self._missing = "shared"
            self._missing_values = np.zeros(0, self.row_dtype.as_numpy_dtype)
        else:
            self._missing, self._missing_values = lookup_arguments.missing_rows(
                default_row, self.output_dim, self.row_dtype
            )
        with tf.init_scope():
            # What `devices` changes is up to a class of its own: __new__.
            self._parts = self._make_parts()
            # What a lookup reads that no tape records.
            self._eager_constants = (
                tf.zeros([0, self.output_dim], self.row_dtype),
                tf.constant(self._missing_values),
            )
        super().__init__(name, optimizer)

    def _make_parts(self) -> tuple[TablePart, ...]:
        """Makes what holds the rows."""
        return (self._make_part(None, self._attributes()),)

    def _make_part(
        self, device: str | None, attributes: dict[str, Any]
    ) -> TablePart:
        return TablePart(
            self.name,
            device,
            attributes,
            self._missing_values,
            self.update_dtype,
        )

    def _attributes(self) -> dict[str, Any]:
        """Those of the variable op."""
        return {
            "dim": self.output_dim,
            "dtype": self.row_dtype,
            "initializer": self._attrs.kind,
            "initializer_a": self._attrs.a,
            "initializer_b": self._attrs.b,
            "seed": self._seed,
            "init_salt": self._salt,
            "num_shards": self._shard_count,
            "table_name": self.name,
            **policies.attributes(
                [self.admission, self._shared_rows, *self._eviction]
            ),
        }

    def _saved_tensors(self) -> dict[str, tf.Tensor]:
        return saved_state.to_checkpoint(
            self.export_all(saved_state.with_optimizer_slots())
        )

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        return self.import_all(saved_state.from_checkpoint(self, saved))

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        children = super()._saved_children(save_type)
        if save_type == "savedmodel":
            # What saved lookups read; the content is the table's own.
            children["hook"] = self.value
            (children["rows"],) = self._parts
        return children

    def _exported(self, exported: Mapping[Any, Any]) -> ExportedTable:
        return ExportedTable(self, exported)

    @property
    def devices(self) -> tuple[str, ...] | None:
        """Those that the rows are spread over; None: they lie here."""
        return None

    @property
    def parts(self) -> tuple[TablePart, ...]:
        """What holds the rows: one for each of `devices`, or one."""
        return self._parts

    @property
    def resource_handle(self) -> tf.Tensor:
        """Handle of the rows in this process.

        Raises:
            NotImplementedError: They are on `devices`.
        """
        return self._parts[0].resource_handle

    @property
    def is_spread(self) -> bool:
        """Whether rows lie elsewhere than in this process alone."""
        return self.devices is not None or self.workers is not None

    @property
    def shared_rows(self) -> int:
        """The number of rows that `SharedRows` gives; 0 without."""
        return 0 if self._shared_rows is None else self._shared_rows.n

    @property
    def first_value_words(self) -> tuple[int, int] | None:
        """Seed and salt; None where all rows start with a constant."""
        if self._attrs.kind in initializers.CONSTANTS:
            return None
        return self._seed, self._salt

    @property
    def has_admission(self) -> bool:
        """Whether ids may have to wait for a row."""
        return self.admission is not None

    def get_config(self) -> dict[str, Any]:
        initializer = self._row_initializer
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = keras.initializers.serialize(initializer)
        default_row = self._missing
        if default_row == "shared":
            default_row = policies.serialize(self._shared_rows)
        elif default_row == "vector":
            default_row = self._missing_values.astype(np.float64).tolist()
        optimizer = self.optimizer
        return {
            "output_dim": self.output_dim,
            "embeddings_initializer": initializer,
            "seed": [self._seed, self._salt],
            "default_row": default_row,
            "dtype": self.dtype,
            "num_shards": self._num_shards,
            "admission": policies.serialize(self.admission),
            "eviction": policies.serialize(self._eviction) or None,
            "optimizer": optimizer and keras.optimizers.serialize(optimizer),
            "devices": None if self.devices is None else list(self.devices),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EmbeddingVariable":
        return cls(**initializers.current_names(config))

    @property
    def update_dtype(self) -> tf.DType:
        """Of optimizer slots, and of gradients that are applied.

        float64 for float64 rows, else float32.
        """
        return tf.float64 if self.row_dtype == tf.float64 else tf.float32

    @property
    def step(self) -> tf.Tensor:
        """int64 scalar; training lookups at one step see an id once.

        By `MinCount(unit="occurrence")` they see it as often as it occurs. An
        optimizer's apply advances it by one, or to the optimizer's iterations
        if these are higher, unless `set_step` drives it.
        """
        return gen_ops.lodestar_embedding_step(self.resource_handle)

    def set_step(self, step: Any) -> None:
        """Sets `step` and takes it over: for ages in days, unix time, ...

        From then on applies leave it alone: the next step begins with the next
        call. Saved with the table.

        Args:
            step: Integer scalar; None: applies advance the step again.
        """
        if step is None:
            gen_ops.lodestar_embedding_release_step(self.resource_handle)
        else:
            gen_ops.lodestar_embedding_set_step(
                self.resource_handle, ids_lib.to_int64(step, name="step")
            )

    def lookup(
        self,
        ids: Any,
        training: bool | None = None,
        weights: Any = None,
        combiner: str | None = None,
        grow: bool = True,
        count: bool = True,
        padding_id: int | None = None,
        default_id: int | None = None,
        admit: bool | None = None,
    ) -> tf.Tensor | tf.RaggedTensor:
        """Reads rows, or bags of rows combined; differentiable.

        Args:
            ids: Integers: dense, ragged of any depth, or sparse (which needs a
                combiner, and indices in row-major order).
            training: True: an unseen id is counted and, once `admission` lets
                it in, gets a row, and gradients train rows. False: nothing
                is written; a gradient of an id without a row is dropped.
                None, as in layers: True while a gradient tape records, unless
                `table.trainable` is False.
            weights: Numbers laid out as `ids`, for sum, mean and sqrtn.
            combiner: `"sum"`, `"mean"` (sum(w x) / sum(w)), `"sqrtn"`
                (sum(w x) / sqrt(sum w^2)), `"max"`, `"first"`, `"last"`, over
                the innermost axis of `ids`. An empty bag gives zeros.
            grow: False: a training lookup adds no ids.
            count: False: a training lookup counts no sighting.
            padding_id: An id that reads zeros; in no row, bag or gradient.
            default_id: With a combiner: the id whose row an empty bag reads.
            admit: In a training lookup, in place of `admission`. True: every
                unseen id gets a row at once. False: none does; their sightings
                are counted. None: as `admission` says.

        Returns:
            Of `dtype`, shaped as `ids` + `[D]` (ragged where `ids` is); with a
            combiner without the innermost axis of `ids`.

        Raises:
            ValueError: A static fact is not as above.
            tf.errors.InvalidArgumentError: `weights` or sparse indices are not
                as above, known only when the op runs.
        """
        ids = ids_lib.to_int64(ids)
        lookup_arguments.check_lookup(
            ids, training, weights, combiner, padding_id, default_id
        )
        grow = check_flag("grow", grow)
        count = check_flag("count", count)
        if admit is not None:
            admit = check_flag("admit", admit)
            if admit and not grow:
                raise ValueError(
                    "`admit`=True gives unseen ids rows, which `grow`=False "
                    "forbids; leave one of them out."
                )
        if training is None:
            training = self.infer_training() and self.trainable
        train = {"insert": training and grow, "count": training and count}
        feature = collection_ops.FeatureAttrs(
            combiner=combiner, padding_id=padding_id, default_id=default_id
        )
        options = {**train, "admit": admit}
        if combiner is None:
            return map_flat(
                lambda flat: self._lookup(
                    feature,
                    collection_ops.FeatureInputs(flat, None, None),
                    **options,
                ),
                ids,
            )
        bags = bags_lib.to_bags(ids, weights)
        inputs = collection_ops.FeatureInputs(*bags[:3])
        return bags.restore(self._lookup(feature, inputs, **options))

    def _lookup(
        self,
        feature: collection_ops.FeatureAttrs,
        inputs: collection_ops.FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        """Rows of the ids, or of the bags; options of `find_or_insert`."""
        hook, missing_row, missing = self.collection_inputs()
        of_ids = (self.resource_handle, hook, inputs.ids, missing_row)
        misses: Any = {"missing": missing, "padding_id": feature.padding_id}
        with embedding_ops.on_cpu_in_graphs():
            if feature.combiner is not None:
                return collection_ops.collection_lookup(
                    [self.resource_handle],
                    [hook],
                    [missing_row],
                    [missing],
                    [feature],
                    [inputs],
                    **options,
                )[0]
            if options["insert"] or options["count"]:
                return embedding_ops.find_or_insert(
                    *of_ids, **(options | misses)
                )
            return embedding_ops.find(*of_ids, **misses)[0]

    def collection_inputs(self) -> tuple[tf.Tensor, tf.Tensor, str]:
        """What ops that look up take: hook, missing row, kind of the latter.

        The hook is the value `[0, output_dim]`, whose gradient is the table's.
        """
        recorded = _private.tape_may_record()
        eager = tf.executing_eagerly()
        if recorded or not eager:
            self.meet_model()
        if recorded:
            self.record()
        if not eager:
            hook = tf.convert_to_tensor(self.value)
            return hook, tf.constant(self._missing_values), self._missing
        hook, missing_row = self._eager_constants
        # Reading a variable costs as much as a small lookup.
        if recorded:
            hook = tf.convert_to_tensor(self.value)
        return hook, missing_row, self._missing

    def find(self, ids: Any) -> tuple[Any, Any]:
        """Reads rows; writes nothing.

        Args:
            ids: Integers, dense or ragged.

        Returns:
            rows, shaped as `ids` + `[output_dim]`, zeros where there is no row,
            whatever `default_row` is; and found, bool, shaped as `ids`.
        """
        ids = ids_lib.to_int64(ids)
        if isinstance(ids, tf.SparseTensor):
            raise ValueError("`ids` is sparse; `find` takes dense or ragged.")
        hook, missing_row, _ = self.collection_inputs()
        rows, found = embedding_ops.find(
            self.resource_handle, hook, flat_values(ids), missing_row
        )
        return map_flat(lambda _: rows, ids), map_flat(lambda _: found, ids)

    def insert_or_assign(self, ids: Any, rows: Any) -> None:
        """Sets the rows of `ids`, adding those that are not there.

        The last of equal ids wins; optimizer slots and frequencies stay. New
        ids ask no admission; under `MaxRows` those that find no room are
        refused, which `stats()` counts.

        Args:
            ids: Integers `[N]`.
            rows: `[N, dim]`; cast to the table's dtype.
        """
        gen_ops.lodestar_embedding_insert_or_assign(
            self.resource_handle,
            ids_lib.to_dense_int64(ids, "insert_or_assign"),
            ids_lib.to_numbers(rows, "rows", self.row_dtype),
        )

    def remove(self, ids: Any) -> tf.Tensor:
        """Removes rows of dense `ids`; returns how many there were."""
        return gen_ops.lodestar_embedding_remove(
            self.resource_handle, ids_lib.to_dense_int64(ids, "remove")
        )

    def size(self) -> tf.Tensor:
        """The number of rows, an int64 scalar."""
        self.check_followed()
        return self._count()

    def _count(self) -> tf.Tensor:
        return gen_ops.lodestar_embedding_size(self.resource_handle)

    def evict(
        self,
        policy: policies.Eviction | Sequence[policies.Eviction] | None = None,
    ) -> tf.Tensor:
        """Removes the rows that a policy names, but none seen in this step.

        Scans all rows, except where rows go by age alone (`MaxRows` with policy
        "lru", or `MaxAge` without a cap).

        Args:
            policy: `MaxAge`, `MinNorm`, `MaxRows` (down to so many rows), or a
                list of these; default: the table's `eviction`.

        Returns:
            The number of rows removed, an int64 scalar.

        Raises:
            ValueError: `policy` is none of these.
        """
        chosen = policies.check_eviction(policy, "policy")
        return gen_ops.lodestar_embedding_evict(
            self.resource_handle,
            own_policy=policy is None,
            **policies.attributes(chosen),
        )

    def decay_frequencies(self, rate: float) -> None:
        """Multiplies all frequencies with `rate`, rounding down.

        Those of ids seen in this step stay above 0.

        Args:
            rate: 0 to 1.

        Raises:
            tf.errors.InvalidArgumentError: `rate` is not.
        """
        gen_ops.lodestar_embedding_decay_frequencies(
            self.resource_handle, tf.cast(rate, tf.float64)
        )

    def clear(self) -> None:
        """Removes all rows; waits for the end of a running snapshot.

        Ids that wait for a row are forgotten, with the filter of
        `CountingBloom`; `SharedRows` begin anew. `step` and the events of
        `stats()` stay.
        """
        gen_ops.lodestar_embedding_clear(self.resource_handle)

    def compact(self) -> tf.Tensor:
        """Gives the memory of removed rows back to the system.

        Rows move into the places of removed ones, and the free end is given
        back, with excess memory of the index and of ids that wait for a row.
        Lookups and updates of resident ids continue in other threads; calls
        that add, remove or order rows wait about a millisecond per shard.

        >>> table.remove(old_ids)
        >>> table.compact()

        Returns:
            The bytes by which `stats()["bytes"]` falls, an int64 scalar.

        Raises:
            tf.errors.ResourceExhaustedError: Out of memory for a smaller piece
                of the index; rows and counters are as before.
        """
        return gen_ops.lodestar_embedding_compact(self.resource_handle)

    def frequency(self, ids: Any) -> Any:
        """The frequency of each id, int64 as `ids`; 0: no row.

        Its sightings, as `decay_frequencies` left them: of steps, or under
        `MinCount(unit="occurrence")` of occurrences.
        """
        return map_flat(
            lambda flat: gen_ops.lodestar_embedding_frequency(
                self.resource_handle, flat
            ),
            ids_lib.to_int64(ids),
        )

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """Counters of the table, eagerly; docs/embedding.md has the schema.

        Args:
            reset: Events count from 0 again.

        Returns:
            Sizes of now, such as rows, capacity, pending and bytes with its
            parts, and counts of events since the table was made or the last
            reset, such as hits, misses, inserts, evicted and read_misses.
        """
        check_eager("stats")
        values, shards = gen_ops.lodestar_embedding_stats(
            self.resource_handle, reset=reset
        )
        return stats_lib.by_name(values.numpy(), shards.numpy())

    def inspect(self, ids: Any) -> InspectedIds:
        """Returns everything about some ids, eagerly; changes nothing.

        Args:
            ids: Integers `[N]`.
        """
        check_eager("inspect")
        ids = ids_lib.to_dense_int64(ids, "inspect")
        rows, slots, names, frequencies, last_seen, shards, states = (
            gen_ops.lodestar_embedding_inspect(
                self.resource_handle,
                ids,
                dtype=self.row_dtype,
                slot_dtype=self.update_dtype,
            )
        )
        names = [name.decode() for name in names.numpy()]
        return InspectedIds(
            ids=ids,
            rows=rows,
            optimizer_slots=dict(zip(names, slots)),
            frequencies=frequencies,
            last_seen=last_seen,
            shards=shards,
            states=[STATES[state] for state in states.numpy()],
        )

    def export(self, optimizer_slots: bool = True) -> EmbeddingRows:
        """Returns everything that the rows hold, in ascending id order, eagerly.

        Args:
            optimizer_slots: False leaves them out.
        """
        check_eager("export")
        out = self.export_all(optimizer_slots)
        names = [name.decode() for name in out["slot_names"].numpy()]
        return EmbeddingRows(
            ids=out["ids"],
            rows=out["rows"],
            optimizer_slots=dict(zip(names, out["optimizer_slots"])),
            frequencies=out["frequencies"],
            last_seen=out["last_seen"],
            optimizer=out["optimizer"].numpy().decode(),
            slot_inits=dict(zip(names, out["slot_inits"].numpy().tolist())),
        )

    def load_rows(self, rows: EmbeddingRows, mode: str = "replace") -> None:
        """Takes rows as `export` gave them, in any order of ids.

        Args:
            rows: Ids must differ. Without frequencies they count from 0,
                without last_seen they were seen now, without optimizer slots
                these start anew, also where a merge overwrites a row.
                Rows of another dtype are cast, so this also converts a table.
            mode: `"replace"` makes this all that the table holds, and takes
                memory for it beside the old rows until it is there; `"merge"`
                adds rows and overwrites those of equal ids. The table's step,
                seed and salt stay; `"replace"` forgets ids that wait for
                admission.

        Raises:
            ValueError: An unknown `mode`, or optimizer slots without the name
                of their optimizer or their initial values.
            tf.errors.InvalidArgumentError: Equal ids, or wrong shapes.
            tf.errors.FailedPreconditionError: More rows than `MaxRows` allows;
                slots of another optimizer; for `"replace"`, a concurrent import,
                or optimizer steps without a pause for a minute.
            tf.errors.ResourceExhaustedError: Out of memory.
        """
        lookup_arguments.check_import(rows, mode)
        self.import_all(saved_state.from_rows(self, rows), mode)

    def __repr__(self) -> str:
        shape = f"output_dim={self.output_dim} dtype={self.dtype}"
        return f"<EmbeddingVariable {self.name!r} {shape}>"

    def export_all(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """What a checkpoint holds, by name; without rows, of these the ids."""
        self.check_followed()
        return self._parts[0].export(optimizer_slots, with_rows)

    def import_all(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Takes what `export_all` gave, in one call: whole or not at all."""
        self.slots.restored()
        return self._parts[0].import_(saved, mode)
