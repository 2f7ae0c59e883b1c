"""Admission and eviction policies of a table."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, get_args

import keras

from lodestar._arguments import explained_class
from lodestar._checks import check_choice, check_count, is_number
from lodestar._reprs import short_repr

# What MinCount counts.
Unit: TypeAlias = Literal["step", "occurrence"]
# How MaxRows picks rows, and what it does in a full table.
LruOrLfu: TypeAlias = Literal["lru", "lfu"]
WhenFull: TypeAlias = Literal["evict", "raise"]
_MAX_BLOOM_COUNT = 255
_MAX_BLOOM_COUNTERS = 1 << 40


def _check_between(
    owner: str, name: str, value: Any, above: float, below: float
) -> None:
    if not (is_number(value) and above < value < below):
        allowed = f"above {above}"
        if below < math.inf:
            allowed = f"between {above} and {below}"
        raise ValueError(
            f"`{name}` of {owner} must be {allowed}, got {value!r}."
        )


@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class _Policy:
    """Base class of policies, which are frozen dataclasses."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return dataclasses.asdict(self)

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the op that creates a table with the policy."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Creates a policy from the result of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        return short_repr(self)


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class MinCount(_Policy):
    """Admits an id when it is seen for the n-th time, with exact counts.

    Before that, the id is read as missing and its gradients are dropped. A waiting
    id takes about 40 bytes; `evict` with `MaxAge` removes old ones.

    Args:
        n: Count that admits an id, at least 1, which admits every id.
        unit: What is counted, also in the frequencies of rows. `"step"` counts
            an id once per step, however often it is looked up. `"occurrence"`
            counts each occurrence in a lookup, so an id that occurs n times in
            a batch gets its row at once.
    """

    n: int
    unit: Unit = "step"

    def __post_init__(self) -> None:
        check_count("n", self.n, 1, owner="MinCount", most=2**32 - 1)
        check_choice("unit", self.unit, get_args(Unit), "MinCount")

    def _attributes(self) -> dict[str, Any]:
        return {
            "admission": "min_count",
            "min_count": int(self.n),
            "count_occurrences": self.unit == "occurrence",
        }


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class CountingBloom(_Policy):
    """Admits an id like `MinCount`, with approximate counts in bounded memory.

    A counting Bloom filter with one byte per counter never admits an id late. Once
    `expected_ids` ids were seen, it admits an id early with probability
    `false_positive_rate`. An id that returns after its row was evicted is admitted
    at once.

    Args:
        n: Count that admits an id, 1 to 255.
        false_positive_rate: Probability in (0, 1).
        expected_ids: Number of unique ids that will be seen, at least 1.
    """

    n: int
    false_positive_rate: float
    expected_ids: int

    def __post_init__(self) -> None:
        check_count("n", self.n, 1, owner="CountingBloom")
        if self.n > _MAX_BLOOM_COUNT:
            raise ValueError(
                f"`n` of CountingBloom must be at most {_MAX_BLOOM_COUNT}, the "
                f"maximum of its counters, got {self.n}. MinCount has no limit."
            )
        rate = self.false_positive_rate
        _check_between("CountingBloom", "false_positive_rate", rate, 0, 1)
        check_count("expected_ids", self.expected_ids, 1, owner="CountingBloom")

    def _attributes(self) -> dict[str, Any]:
        bits = -math.log(self.false_positive_rate) / math.log(2) ** 2
        counters = max(1, math.ceil(self.expected_ids * bits))
        if counters > _MAX_BLOOM_COUNTERS:
            raise ValueError(
                "CountingBloom must have at most 2^40 counters, got "
                f"{counters} for `expected_ids`={self.expected_ids} and "
                f"`false_positive_rate`={self.false_positive_rate}."
            )
        return {
            "admission": "counting_bloom",
            "min_count": int(self.n),
            "num_counters": counters,
            "num_hashes": max(1, round(bits * math.log(2))),
        }


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class MaxAge(_Policy):
    """Evicts rows that were not used for more than `steps`.

    A table evicts a row as soon as its `step` moves past that age, and forgets ids
    that wait that long for admission by `MinCount`, but not by `CountingBloom`.

    Args:
        steps: Age in units of the table's `step`, at least 0. The policy of a table
            needs at least 1, because its rows have age 1 after a step that used them.
    """

    steps: int

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 0, owner="MaxAge")

    def _attributes(self) -> dict[str, Any]:
        return {"max_age": int(self.steps)}


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class MaxRows(_Policy):
    """Caps the table at `n` rows.

    A lookup with new ids first evicts the rows with the smallest (last-seen step,
    hash of the id) or (frequency, last-seen step, hash of the id), but no row of
    the current step. If there is still no room, it refuses new ids, those with the
    smallest hash first: they are read as missing. `stats()` counts both.

    Args:
        n: Maximum number of rows, at least 1.
        policy: `"lru"` or `"lfu"`.
        when_full: `"evict"`, or `"raise"`: a call with more new ids than there is
            room for raises a tf.errors.FailedPreconditionError with the name of
            the table, and changes nothing. Not for tables on several devices or
            workers.
    """

    n: int
    policy: LruOrLfu = "lru"
    when_full: WhenFull = "evict"

    def __post_init__(self) -> None:
        check_count("n", self.n, 1, owner="MaxRows")
        check_choice("policy", self.policy, get_args(LruOrLfu), "MaxRows")
        check_choice("when_full", self.when_full, get_args(WhenFull), "MaxRows")

    def _attributes(self) -> dict[str, Any]:
        return {
            "max_rows": int(self.n),
            "max_rows_policy": self.policy,
            "when_full": self.when_full,
        }


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class MinNorm(_Policy):
    """Evicts rows whose Euclidean norm is below `x`.

    A table does that when its `step` reaches a multiple of `every`.

    Args:
        x: Threshold above 0.
        every: Steps between evictions, at least 1. `evict(policy)` ignores it.
    """

    x: float
    every: int = 1000

    def __post_init__(self) -> None:
        _check_between("MinNorm", "x", self.x, 0, math.inf)
        check_count("every", self.every, 1, owner="MinNorm")

    def _attributes(self) -> dict[str, Any]:
        return {
            "min_norm": float(self.x),
            "min_norm_every": int(self.every),
        }


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class MinFrequency(_Policy):
    """Evicts rows with a frequency below `n`.

    A table does that when its `step` reaches a multiple of `every`, so a row must
    reach the frequency before the next such step, however new it is. The frequency
    of a row is the number of steps that used it, or of occurrences under
    `MinCount(unit="occurrence")`, reduced by `decay_frequencies`.

    Args:
        n: Frequency of the rows to keep, at least 1.
        every: Steps between evictions, at least 1. `evict(policy)` ignores it.
    """

    n: int
    every: int = 1000

    def __post_init__(self) -> None:
        check_count("n", self.n, 1, owner="MinFrequency")
        check_count("every", self.every, 1, owner="MinFrequency")

    def _attributes(self) -> dict[str, Any]:
        return {
            "min_frequency": int(self.n),
            "min_frequency_every": int(self.every),
        }


@keras.saving.register_keras_serializable(package="lodestar")
@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class SharedRows(_Policy):
    """A `default_row` with `n` trained rows that ids without a row share.

    An id without a row reads row `mix64(id) % n` and trains it: the gradients of all
    ids of a shared row are summed, in batch order. Shared rows do not use ids of
    the table and are saved with it.

    Args:
        n: Number of shared rows, 1 to 2^30.
    """

    n: int

    def __post_init__(self) -> None:
        check_count("n", self.n, 1, owner="SharedRows", most=2**30)

    def _attributes(self) -> dict[str, Any]:
        return {"shared_rows": int(self.n)}


Admission = MinCount | CountingBloom
Eviction = MaxAge | MaxRows | MinFrequency | MinNorm
Evictions = Eviction | Sequence[Eviction] | None


def check_admission(admission: Any) -> Admission | None:
    """Returns an admission policy, deserialized if it is a config."""
    if isinstance(admission, Mapping):
        admission = keras.saving.deserialize_keras_object(admission)
    if admission is not None and not isinstance(
        admission, (MinCount, CountingBloom)
    ):
        raise ValueError(
            f"`admission`={admission!r} is not None, MinCount or CountingBloom."
        )
    return admission


def check_eviction(
    eviction: Any, name: str = "eviction"
) -> tuple[Eviction, ...]:
    """Returns eviction policies as a tuple, deserialized if they are configs."""
    if eviction is None:
        return ()
    if isinstance(eviction, str) or not isinstance(eviction, Sequence):
        eviction = [eviction]
    policies = tuple(
        keras.saving.deserialize_keras_object(policy)
        if isinstance(policy, Mapping)
        else policy
        for policy in eviction
    )
    for policy in policies:
        if not isinstance(policy, Eviction):
            raise ValueError(
                f"`{name}` must be MaxAge, MaxRows, MinFrequency or MinNorm, got "
                f"{policy!r}."
            )
        if (
            name == "policy"
            and isinstance(policy, MaxRows)
            and policy.when_full == "raise"
        ):
            raise ValueError(
                f"`policy` must evict rows, got {policy!r}. Leave `when_full` "
                "out."
            )
        if (
            name == "eviction"
            and isinstance(policy, MaxAge)
            and policy.steps < 1
        ):
            raise ValueError(
                "`eviction` must not contain MaxAge(0), which evicts each row at "
                "the end of the step that used it. Use at least MaxAge(1)."
            )
    if len({type(policy) for policy in policies}) < len(policies):
        raise ValueError(
            f"`{name}` must not repeat a kind, got {list(policies)!r}."
        )
    return policies


def attributes(policies: Sequence[_Policy | None]) -> dict[str, Any]:
    """Returns the attributes of the op that creates a table with `policies`."""
    merged: dict[str, Any] = {}
    for policy in policies:
        if policy is not None:
            merged.update(policy._attributes())
    return merged


def serialize(policy: Any) -> Any:
    """Returns the config of a policy or None, or a list of configs."""
    if isinstance(policy, Sequence):
        return [keras.saving.serialize_keras_object(p) for p in policy]
    return policy and keras.saving.serialize_keras_object(policy)
