"""Checks and conversions of arguments."""

import difflib
import numbers
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FLOAT_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INT_DTYPES = (tf.int32, tf.int64)
# Dtypes of ops that only move rows.
MOVED_DTYPES = (
    *FLOAT_DTYPES,
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    tf.bool,
    tf.string,
)


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer of Python or NumPy, but not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or NumPy, but not a bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_choice(
    name: str, value: Any, choices: Collection[Any], owner: str = ""
) -> None:
    """Raises ValueError unless `value`, of a class `owner`, is in `choices`."""
    if value not in choices:
        of = f" of {owner}" if owner else ""
        raise ValueError(
            f"`{name}`={value!r}{of} is not in {choices}."
            f"{did_you_mean(value, choices)}"
        )


def did_you_mean(value: Any, known: Iterable[Any]) -> str:
    """Returns " Did you mean 'x'?" for a misspelled name, else ""."""
    if not isinstance(value, str):
        return ""
    by_lower = {name.lower(): name for name in known if isinstance(name, str)}
    short = value.lower()
    close = difflib.get_close_matches(short, by_lower, n=1, cutoff=0.7) or [
        name for name in by_lower if len(short) > 3 and short in name
    ]
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def check_flag(name: str, value: Any) -> bool:
    """Returns `value`; ValueError unless it is a Python bool."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"`{name}`={value!r} is not a Python bool.")


def check_text(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is None or a string."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string or None, got {value!r}.")


def check_name(name: Any) -> str:
    """Returns the name of a table; ValueError if files cannot hold it."""
    if not isinstance(name, str):
        raise ValueError(f"`name` must be a string, got {name!r}.")
    if "\0" in name or name.encode(errors="replace").decode() != name:
        raise ValueError(
            "`name` must not contain null characters or lone surrogates, "
            f"which files cannot hold, got {name!r}."
        )
    return name


def check_model_first(function: str, model: Any, path: Any) -> None:
    """Raises TypeError if `model` and `path` of a function are swapped.

    Args:
        function: Name of the function, for the message.
        model: A model or tables.
        path: A path.
    """
    if isinstance(model, (str, bytes, os.PathLike)):
        raise TypeError(
            f"`model` is the path {os.fsdecode(model)!r}. Pass the model first: "
            f"lodestar.{function}(model, path)."
        )
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(
            f"`path` must be a path, got a {type(path).__name__}: "
            f"lodestar.{function}(model, path)."
        )


def check_texts(**lists: Any) -> None:
    """Raises ValueError unless each value is None or a list of strings."""
    for name, value in lists.items():
        if value is None:
            continue
        if (
            isinstance(value, str)
            or not isinstance(value, Collection)
            or not all(isinstance(text, str) for text in value)
        ):
            raise ValueError(
                f"`{name}` must be a list of strings, got {value!r}."
            )


def check_integer(name: str, value: Any) -> int:
    """Returns `value` as an int; ValueError unless it is an int64."""
    if not (is_integer(value) and -(2**63) <= value < 2**63):
        raise ValueError(f"`{name}` must be a 64-bit integer, got {value!r}.")
    return int(value)


def check_count(
    name: str,
    value: Any,
    least: int = 1,
    owner: str = "",
    most: int = 2**63 - 1,
) -> int:
    """Returns `value` as an int; ValueError unless it is in [`least`, `most`].

    With an `owner`, a class that has the attribute `name`, whole floats are
    accepted.
    """
    whole = bool(owner) and is_number(value) and value == value // 1
    if not ((is_integer(value) or whole) and least <= value <= most):
        of = f" of {owner}" if owner else ""
        allowed = f"of at least {least}"
        if most < 2**63 - 1:
            allowed = f"in [{least}, {most}]"
        raise ValueError(
            f"`{name}`{of} must be an integer {allowed}, got {value!r}."
        )
    return int(value)


def check_epoch_or_count(name: str, value: Any, *others: str) -> None:
    """Raises ValueError unless `value` is `"epoch"`, in `others`, or an int64 >= 1."""
    known = ("epoch", *others)
    if value not in known and not (is_integer(value) and 1 <= value < 2**63):
        raise ValueError(
            f"`{name}` must be {', '.join(map(repr, known))} or an integer of at "
            f"least 1, got {value!r}."
        )


def check_eager(what: str) -> None:
    """Raises RuntimeError in a graph, which cannot return Python objects."""
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"`{what}` returns Python objects and runs eagerly; call it "
            "outside of the tf.function."
        )


def check_unmasked(name: str, x: Any) -> None:
    """Raises ValueError if a NumPy array, or one in a list, has masked values.

    TensorFlow, Keras and NumPy drop the mask when they convert it.
    """
    arrays = x if isinstance(x, (list, tuple)) else [x]
    for array in arrays:
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise ValueError(
                f"`{name}` is a masked array, and {np.ma.count_masked(array)} "
                f"of its {array.size} values are masked. Replace them with "
                "`filled(0)`, or remove them with `compressed()`."
            )


def check_dtype(
    name: str, x: tf.Tensor, dtypes: Sequence[tf.DType]
) -> tf.Tensor:
    """Returns `x`; TypeError unless its dtype is one of `dtypes`."""
    if x.dtype not in dtypes:
        names = ", ".join(dtype.name for dtype in dtypes)
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, but must be one of {names}."
        )
    return x


def convert(name: str, x: Any, hint: tf.DType | None) -> tf.Tensor:
    """Returns `x` as a tensor, of dtype `hint` if that keeps every number.

    Raises:
        ValueError: A value is masked.
    """
    check_unmasked(name, x)
    # A hint would truncate fractions and high bits of NumPy's numbers.
    of_numpy = isinstance(x, (np.ndarray, np.generic)) and x.size
    if hint and of_numpy and not np.can_cast(x.dtype, hint.as_numpy_dtype):
        hint = None
    return tf.convert_to_tensor(x, dtype_hint=hint)


def as_int64(name: str, x: Any, rank: int | None = None) -> tf.Tensor:
    """Returns an int64 or int32 tensor of rank `rank` as int64."""
    x = convert(name, x, tf.int64)
    if x.dtype not in INT_DTYPES:
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, but must be int64 or int32."
        )
    if rank is not None and x.shape.rank not in (None, rank):
        raise ValueError(
            f"`{name}` must have rank {rank}, got shape {x.shape}."
        )
    return tf.cast(x, tf.int64)


def as_vector(name: str, vector: Any) -> tf.Tensor:
    """Returns an int64 or int32 vector as int64."""
    return as_int64(name, vector, 1)


def as_dtype_of(name: str, x: Any, dtype: tf.DType, of: str) -> tf.Tensor:
    """Returns numbers or strings as a tensor of `dtype`, without any change.

    TensorFlow wraps integers of Python and NumPy around. Errors say that `of`
    has `dtype`.

    Raises:
        TypeError: `x` is a tensor of another dtype.
        ValueError: The integer `dtype` cannot represent a number.
    """
    if tf.is_tensor(x):
        if x.dtype != dtype:
            raise TypeError(
                f"`{name}` has dtype {x.dtype.name}, but {of} has {dtype.name}."
            )
        return tf.convert_to_tensor(x)
    if dtype.is_integer:
        # Python's numbers neither round nor wrap around.
        x = np.asarray(x, dtype=object)
        for number in x.flat:
            if not _is_whole(number):
                raise ValueError(
                    f"`{name}` must be an integer, as {of} has dtype "
                    f"{dtype.name}, got {number!r}."
                )
            if not dtype.min <= number <= dtype.max:
                raise ValueError(
                    f"`{name}` must be in the range of {dtype.name}, got "
                    f"{number}."
                )
        x = x.astype(dtype.as_numpy_dtype)
    return tf.convert_to_tensor(x, dtype)


def _is_whole(number: Any) -> bool:
    if isinstance(number, numbers.Integral):
        return True
    return isinstance(number, numbers.Real) and float(number).is_integer()


def assert_true(holds: Any, message: Sequence[Any]) -> Any:
    """Returns a check, for `after`, that the scalar `holds` is True.

    Like `tf.debugging.Assert`, whose eager errors begin with "Expected 'False' to be
    true. Summarized data:".

    Args:
        holds: Whether the check succeeds.
        message: Strings and tensors. The error has the first elements of a tensor.

    Raises:
        tf.errors.InvalidArgumentError: `holds` is False. A graph raises it when it
            runs.
    """
    if not tf.executing_eagerly():
        return tf.debugging.Assert(holds, list(message))
    if not holds:
        text = " ".join(map(_first_elements, message))
        raise tf.errors.InvalidArgumentError(None, None, text)
    return None


def assert_none(
    wrong: tf.Tensor, message: Callable[[tf.Tensor], Sequence[Any]]
) -> Any:
    """Returns a check, for `after`, that no element of a vector is True.

    Args:
        wrong: A bool vector or scalar.
        message: Returns the strings and tensors of integers that make the message.
            Called with the place of the first True, a vector of one number.

    Raises:
        tf.errors.InvalidArgumentError: An element is True. A graph raises it when it
            runs.
    """
    holds = tf.logical_not(tf.reduce_any(wrong))
    if tf.executing_eagerly() and holds:
        return None

    def fail() -> tf.Tensor:
        parts = [
            part
            if isinstance(part, str)
            else tf.strings.reduce_join(
                tf.strings.as_string(part), separator=", "
            )
            for part in message(tf.where(tf.reshape(wrong, [-1]))[:1, 0])
        ]
        text = tf.strings.join(parts)
        if tf.executing_eagerly():
            raise tf.errors.InvalidArgumentError(
                None, None, tf.compat.as_str_any(text.numpy())
            )
        return after(tf.debugging.Assert(holds, [text]), holds)

    # Only a failing check makes its message.
    return tf.cond(holds, lambda: holds, fail)


def _first_elements(part: Any, count: int = 3) -> str:
    if isinstance(part, str):
        return part
    elements = np.ravel(part)
    texts = [
        tf.compat.as_str_any(element) for element in elements[:count].tolist()
    ]
    return ", ".join(texts + ["..."] * (elements.size > count))


def after(check: Any, tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, which a graph computes after one or several checks.

    Eager checks raise and return None.
    """
    checks = [c for c in tf.nest.flatten(check) if c is not None]
    if not checks:
        return tensor
    with tf.control_dependencies(checks):
        return tf.identity(tensor)
