"""Which ids get a row, and which rows go: the policies of a table."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from lodestar._checks import check_size, is_number

_MAX_BLOOM_COUNT = 255
_MAX_BLOOM_COUNTERS = 1 << 40


def _check_between(
    owner: str, name: str, value: Any, above: float, below: float
) -> None:
    if not (is_number(value) and above < value < below):
        wanted = f"above {above}"
        if below < math.inf:
            wanted = f"between {above} and {below}"
        raise ValueError(f"`{name}`={value!r} of {owner} is not {wanted}.")


@dataclasses.dataclass(frozen=True)
class _Policy:
    """Serialization of policies, which are frozen dataclasses."""

    def get_config(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(**config)


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class MinCount(_Policy):
    """Admission by exact counts: an id's n-th sighting gives it a row.

    The sightings before it read as missing, and their gradients are dropped.
    An id that waits takes about 40 bytes; `evict` with `MaxAge` forgets those
    not seen for long.

    Args:
        n: At least 1, which admits every id.
        unit: What a sighting is, in the frequency of rows too. `"step"`: a step
            sees an id once, however often and in however many lookups it
            occurs. `"occurrence"`: each occurrence of it in a lookup; one that
            occurs n times in a batch gets its row at once.
    """

    n: int
    unit: str = "step"

    def __post_init__(self) -> None:
        check_size("n", self.n, 1, owner="MinCount")
        if self.unit not in ("step", "occurrence"):
            raise ValueError(
                f"`unit`={self.unit!r} of MinCount is not 'step' or "
                "'occurrence'."
            )

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op."""
        return {
            "admission": "min_count",
            "min_count": int(self.n),
            "count_occurrences": self.unit == "occurrence",
        }


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class CountingBloom(_Policy):
    """Admission by counts in bounded memory, as `MinCount` otherwise.

    A counting Bloom filter of one byte a counter: an id is never admitted
    late, and one that was not seen n times is admitted early with the given
    probability once as many ids as expected were seen. An id that comes back
    after its row was evicted is admitted at once.

    Args:
        n: 1 to 255.
        false_positive_rate: Above 0, below 1.
        expected_ids: Distinct ids that will be seen, at least 1.
    """

    n: int
    false_positive_rate: float
    expected_ids: int

    def __post_init__(self) -> None:
        check_size("n", self.n, 1, owner="CountingBloom")
        if self.n > _MAX_BLOOM_COUNT:
            raise ValueError(
                f"`n`={self.n} of CountingBloom is above {_MAX_BLOOM_COUNT}, "
                "where its counters end; MinCount has no such limit."
            )
        rate = self.false_positive_rate
        _check_between("CountingBloom", "false_positive_rate", rate, 0, 1)
        check_size("expected_ids", self.expected_ids, 1, owner="CountingBloom")

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op."""
        bits = -math.log(self.false_positive_rate) / math.log(2) ** 2
        counters = max(1, math.ceil(self.expected_ids * bits))
        if counters > _MAX_BLOOM_COUNTERS:
            raise ValueError(
                f"`expected_ids`={self.expected_ids} of CountingBloom takes "
                f"{counters} counters of a byte at `false_positive_rate`="
                f"{self.false_positive_rate}, wanted at most 2^40."
            )
        return {
            "admission": "counting_bloom",
            "min_count": int(self.n),
            "num_counters": counters,
            "num_hashes": max(1, round(bits * math.log(2))),
        }


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class MaxAge(_Policy):
    """Eviction of rows last seen more than `steps` ago, by `evict()`.

    Ids that wait for admission by `MinCount` are forgotten at the same age; the
    filter of `CountingBloom` forgets none.

    Args:
        steps: At least 0, in the unit of the table's `step`.
    """

    steps: int

    def __post_init__(self) -> None:
        check_size("steps", self.steps, 0, owner="MaxAge")

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op and the evict op."""
        return {"max_age": int(self.steps)}


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class MaxRows(_Policy):
    """A hard cap: the table never holds more than `n` rows.

    A lookup that brings new ids first evicts the rows with the smallest
    (last-seen step, hash of the id), or (frequency, last-seen step, hash of the
    id), but none of this step; new ids that find no room even so are refused,
    those of the smallest hash first: they read as missing. `stats()` counts
    both.

    Args:
        n: At least 1.
        policy: `"lru"` or `"lfu"`.
    """

    n: int
    policy: str = "lru"

    def __post_init__(self) -> None:
        check_size("n", self.n, 1, owner="MaxRows")
        if self.policy not in ("lru", "lfu"):
            raise ValueError(
                f"`policy`={self.policy!r} of MaxRows is not 'lru' or 'lfu'."
            )

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op and the evict op."""
        return {"max_rows": int(self.n), "max_rows_policy": self.policy}


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class MinNorm(_Policy):
    """Eviction of rows whose Euclidean norm is below `x`, by `evict()`.

    Args:
        x: Above 0.
    """

    x: float

    def __post_init__(self) -> None:
        _check_between("MinNorm", "x", self.x, 0, math.inf)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op and the evict op."""
        return {"min_norm": float(self.x)}


@keras.saving.register_keras_serializable(package="lodestar")
@dataclasses.dataclass(frozen=True)
class SharedRows(_Policy):
    """As `default_row`: `n` trained rows that ids without a row share.

    An id without a row reads row `mix64(id) % n` of them, a bag of buckets for
    cold ids, and its gradient trains that row: gradients of all such ids are
    summed, in batch order. The rows lie outside the id space and are saved
    with the table.

    Args:
        n: 1 to 2^30.
    """

    n: int

    def __post_init__(self) -> None:
        check_size("n", self.n, 1, owner="SharedRows")

    def attributes(self) -> dict[str, Any]:
        """Attributes of the variable op."""
        return {"shared_rows": int(self.n)}


Admission = MinCount | CountingBloom
Eviction = MaxAge | MaxRows | MinNorm


def check_admission(admission: Any) -> Admission | None:
    """Returns `admission`, deserialized if it is a config."""
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
    """Returns one policy, several or None as a tuple, configs deserialized."""
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
        if not isinstance(policy, (MaxAge, MaxRows, MinNorm)):
            raise ValueError(
                f"`{name}` has {policy!r}, which is not MaxAge, MaxRows or "
                "MinNorm."
            )
    if len({type(policy) for policy in policies}) < len(policies):
        raise ValueError(f"`{name}`={list(policies)!r} has a kind twice.")
    return policies


def attributes(policies: Sequence[Any]) -> dict[str, Any]:
    """Attributes of an op for all of `policies`; None is none."""
    merged: dict[str, Any] = {}
    for policy in policies:
        if policy is not None:
            merged.update(policy.attributes())
    return merged


def serialize(policy: Any) -> Any:
    """A config of one policy, of several, or None."""
    if isinstance(policy, Sequence):
        return [keras.saving.serialize_keras_object(p) for p in policy]
    return policy and keras.saving.serialize_keras_object(policy)
