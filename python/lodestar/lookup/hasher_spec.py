"""Which hash sends an unknown key to its bucket."""

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple


class HasherSpec(NamedTuple):
    """A hash, as TensorFlow's lookup tables name them.

    Attributes:
        hasher: "fasthash", "stronghash" or "legacy": the hash of
            `tf.strings.to_hash_bucket_fast`, `_strong` and `to_hash_bucket`.
        key: Two words for "stronghash", else None.
    """

    hasher: str
    key: Sequence[int] | None


FastHashSpec = HasherSpec("fasthash", None)
LegacyHashSpec = HasherSpec("legacy", None)


def StrongHashSpec(key: Sequence[int]) -> HasherSpec:  # noqa: N802
    """Returns the hash that outsiders cannot aim at a bucket.

    Args:
        key: Two unsigned 64-bit words.

    Raises:
        TypeError: `key` is no integers.
        ValueError: `key` is not two of them.
    """
    return _checked(HasherSpec("stronghash", tuple(key)))


def _checked(spec: Any) -> HasherSpec:
    hasher = getattr(spec, "hasher", None)
    key = getattr(spec, "key", None)
    if hasher not in ("fasthash", "stronghash", "legacy"):
        raise TypeError(
            f"`hasher_spec` is {spec!r}, wanted FastHashSpec, LegacyHashSpec or "
            "StrongHashSpec(key)"
        )
    if hasher == "stronghash":
        if key is None or len(key) != 2:
            raise ValueError(
                f"the strong hash takes a key of two words, found {key!r}"
            )
        if not all(isinstance(word, numbers.Integral) for word in key):
            raise TypeError(
                f"the strong hash's key must be integers, found {key!r}"
            )
        return HasherSpec(hasher, tuple(map(int, key)))
    return HasherSpec(hasher, None)


def hasher_attributes(spec: HasherSpec) -> tuple[str, list[int]]:
    """Returns the op's `hasher` and `hasher_key` of a spec, ours or TensorFlow's.

    Raises:
        TypeError: not a spec; a strong hash whose key is no integers.
        ValueError: a strong hash whose key is not two.
    """
    spec = _checked(spec)
    # The attribute is signed; the words are bit patterns.
    words = [
        (word & (2**64 - 1)) - (2**64 if word & 2**63 else 0)
        for word in spec.key or ()
    ]
    return spec.hasher, words
