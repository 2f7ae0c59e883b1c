"""Which hash sends an unknown key to its bucket."""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any

_HASHERS = ("fasthash", "legacy", "stronghash")


@dataclasses.dataclass(frozen=True)
class HasherSpec:
    """A hash, named as in TensorFlow's lookup tables.

    The name alone is accepted wherever a spec is.

    >>> table = lodestar.lookup.IdTable(["emerson", "lake"])
    >>> spec = lodestar.lookup.HasherSpec("stronghash", key=[7, 2**63])
    >>> table = lodestar.lookup.IdTableWithHashBuckets(table, 10, spec)

    Args:
        hasher: `"fasthash"`, `"legacy"` or `"stronghash"`, the hash of
            `tf.strings.to_hash_bucket_fast`, `to_hash_bucket` or
            `to_hash_bucket_strong`. Without the key of the last one, nobody can
            choose keys that share a bucket.
        key: Two unsigned 64-bit integers for `"stronghash"`, otherwise None.

    Raises:
        ValueError: The hash is unknown, or has another key.
    """

    hasher: str
    key: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.hasher not in _HASHERS:
            raise ValueError(
                f"`hasher` must be one of {', '.join(_HASHERS)}, got "
                f"{self.hasher!r}."
            )
        if self.hasher != "stronghash":
            if self.key is not None:
                raise ValueError(
                    f"`key` must be None for the hash {self.hasher!r}, got "
                    f"{self.key!r}."
                )
            return
        key = () if self.key is None else tuple(self.key)
        if len(key) != 2 or not all(
            isinstance(word, numbers.Integral) for word in key
        ):
            raise ValueError(
                "`key` of the hash 'stronghash' must be two integers, got "
                f"{self.key!r}."
            )
        object.__setattr__(self, "key", tuple(map(int, key)))


def hasher_attributes(spec: Any) -> tuple[str, list[int]]:
    """Returns the op's `hasher` and `hasher_key`.

    Args:
        spec: A HasherSpec, one of TensorFlow's, or the name of a hash.

    Raises:
        TypeError: It is none of these.
        ValueError: As HasherSpec.
    """
    if isinstance(spec, str):
        spec = HasherSpec(spec)
    elif not isinstance(spec, HasherSpec):
        if not hasattr(spec, "hasher") or not hasattr(spec, "key"):
            raise TypeError(
                "`hasher_spec` must be a HasherSpec or the name of a hash, got "
                f"{spec!r}."
            )
        spec = HasherSpec(spec.hasher, spec.key)
    # The attribute is signed, and holds the same bits.
    words = [
        (word & (2**64 - 1)) - (2**64 if word & 2**63 else 0)
        for word in spec.key or ()
    ]
    return spec.hasher, words
