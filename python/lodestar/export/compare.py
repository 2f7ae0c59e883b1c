"""Compares an output of an export with that of the model."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.ragged import LoDTensor


class MismatchError(ValueError):
    """An export gives other scores than the model."""


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """By how much an output differs at most.

    Attributes:
        max_difference: Of any two numbers; 0 where both are NaN or the same
            infinity, infinity where one of them is. 1 where other things than
            numbers differ.
        example: Which example that is in, by the first axis; None if the
            output has no numbers, or no axis.
        signature: Which signature gave it.
    """

    max_difference: float
    example: int | None
    signature: str


def compare(
    name: str, wanted: Any, found: Any, signature: str, atol: float
) -> OutputDifference:
    """Where the output `name` of the model and of the export differs most.

    Raises:
        MismatchError: By more than `atol`, or in kind, dtype or shape.
    """

    def check(what: str, of_model: Any, of_export: Any) -> None:
        if of_model != of_export:
            raise MismatchError(
                f"the output {name!r} has the {what} {of_model} in the model, "
                f"but {of_export} in the export through {signature!r}."
            )

    wanted, found = (
        x.to_ragged() if isinstance(x, LoDTensor) else x
        for x in (wanted, found)
    )
    wanted, found = (
        x if isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x)
        for x in (wanted, found)
    )
    check(
        "kind",
        *(
            "ragged" if isinstance(x, tf.RaggedTensor) else "dense"
            for x in (wanted, found)
        ),
    )
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
            f"the output {name!r} of example {example}"
            + (f", at {at}," if len(at) > 1 else "")
            + f" is {np.asarray(wanted)[place]} in the model, but "
            f"{np.asarray(found)[place]} in the export through {signature!r}; "
            f"that is {largest:.3g} apart, more than `atol`={atol}."
        )
    return OutputDifference(largest, example, signature)


def _differences(wanted: Any, found: Any) -> np.ndarray:
    wanted, found = np.asarray(wanted), np.asarray(found)
    same = wanted == found
    if wanted.dtype.kind in "OSUb":  # text, truth
        return np.where(same, 0.0, 1.0)
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    same |= np.isnan(wanted) & np.isnan(found)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wanted - found)
    # Whole numbers beyond 2^53 may differ by less than float64 can say.
    apart = np.where(apart == 0, np.finfo(np.float64).tiny, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return np.where(same, 0.0, apart)
