"""Compares an output of an export with the model's output."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.ragged import LoDTensor


class MismatchError(ValueError):
    """The outputs of an export and of its model differ."""


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """The largest difference of an output.

    Attributes:
        max_difference: Largest absolute difference of two numbers. Two NaNs or
            equal infinities differ by 0, one of them and another number by
            infinity, and different strings or booleans by 1.
        example: Index of its example on the first axis; None if the output is
            empty or a scalar.
        signature: Signature that returned the output.
    """

    max_difference: float
    example: int | None
    signature: str


def compare(
    name: str, wanted: Any, found: Any, signature: str, atol: float
) -> OutputDifference:
    """Returns where the output `name` of model and export differs most.

    Raises MismatchError if that is more than `atol`, or if kind, dtype or shape
    differ.
    """

    def check(what: str, of_model: Any, of_export: Any) -> None:
        if of_model != of_export:
            raise MismatchError(
                f"The output {name!r} has the {what} {of_model} in the model, "
                f"but {of_export} in the export through {signature!r}."
            )

    wanted, found = _as_tensor(wanted), _as_tensor(found)
    check("kind", _kind(wanted), _kind(found))
    check("dtype", wanted.dtype.name, found.dtype.name)
    examples = None
    if isinstance(wanted, tf.RaggedTensor):
        splits = [
            [s.numpy().tolist() for s in x.nested_row_splits]
            for x in (wanted, found)
        ]
        check("row splits", *splits)
        examples = np.arange(len(splits[0][0]) - 1)
        for of_axis in splits[0]:
            examples = np.repeat(examples, np.diff(of_axis))
        wanted, found = wanted.flat_values, found.flat_values
    check("shape", wanted.shape.as_list(), found.shape.as_list())
    wanted, found = wanted.numpy(), found.numpy()
    if np.size(wanted) == 0:
        return OutputDifference(0.0, None, signature)
    differences = _differences(wanted, found)
    place = np.unravel_index(np.argmax(differences), differences.shape)
    largest = float(differences[place])
    example = None
    if place:
        example = int(place[0] if examples is None else examples[place[0]])
    if not largest <= atol:
        at = [int(i) for i in place]
        raise MismatchError(
            f"The output {name!r} of example {example}"
            + (f", at {at}," if len(at) > 1 else "")
            + f" is {np.asarray(wanted)[place]} in the model, but "
            f"{np.asarray(found)[place]} in the export through {signature!r}. "
            f"They are {largest:.3g} apart, more than `atol`={atol}."
        )
    return OutputDifference(largest, example, signature)


def _as_tensor(x: Any) -> Any:
    if isinstance(x, LoDTensor):
        return x.to_ragged()
    return x if isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x)


def _kind(x: Any) -> str:
    return "ragged" if isinstance(x, tf.RaggedTensor) else "dense"


def _differences(wanted: Any, found: Any) -> np.ndarray:
    wanted, found = np.asarray(wanted), np.asarray(found)
    same = wanted == found
    if wanted.dtype.kind in "OSUb":  # strings, booleans
        return np.where(same, 0.0, 1.0)
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    same |= np.isnan(wanted) & np.isnan(found)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wanted - found)
    # Integers above 2^53 may differ by less than float64 can represent.
    apart = np.where(apart == 0, np.finfo(np.float64).tiny, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return np.where(same, 0.0, apart)
