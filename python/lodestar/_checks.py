"""Checks of arguments, with the words of their errors, and conversions."""

import numbers
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FLOAT_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INT_DTYPES = (tf.int32, tf.int64)
# Of ops that move rows and do not compute with them.
MOVED_DTYPES = (
    *FLOAT_DTYPES,
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    tf.bool,
    tf.string,
)


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer of Python or NumPy, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or NumPy, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}`={value!r} is not in {choices}.")


def check_flag(name: str, value: Any) -> bool:
    """Returns `value`; ValueError unless it is a Python bool."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"`{name}`={value!r} is not a Python bool.")


def check_text(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is None or text."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}`={value!r} is not None or text.")


def check_name(name: Any) -> str:
    """Returns `name`, of a table.

    Raises:
        ValueError: It is not a string, or one that files cannot hold.
    """
    if not isinstance(name, str):
        raise ValueError(f"`name`={name!r} is not text.")
    if "\0" in name or name.encode(errors="replace").decode() != name:
        raise ValueError(
            "`name` must not contain null characters or lone surrogates, "
            f"which files cannot hold, got {name!r}."
        )
    return name


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
                f"`{name}` must be a list of strings, found {value!r}."
            )


def check_integer(name: str, value: Any) -> int:
    """Returns `value` as an int; ValueError unless it is an int64."""
    if not (is_integer(value) and -(2**63) <= value < 2**63):
        raise ValueError(f"`{name}`={value!r} is not an integer of 64 bits.")
    return int(value)


def _is_count(value: Any, least: int) -> bool:
    return is_integer(value) and least <= value < 2**63


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raises ValueError unless `value` is an int64 from `least` on."""
    if not _is_count(value, least):
        raise ValueError(
            f"`{name}` is {value!r}, wanted an integer of {least} or more"
        )


def check_least(name: str, value: Any, least: int) -> int:
    """As `check_count`, in the words of snapshots; returns `value`."""
    if not _is_count(value, least):
        raise ValueError(f"`{name}` is {value!r}, wanted {least} or more.")
    return value


def check_at_least(name: str, value: Any, least: int) -> None:
    """As `check_count`, in the words of readers and writers."""
    if not _is_count(value, least):
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, found {value!r}."
        )


def check_epoch_or_count(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is `"epoch"` or an int64 from 1 on."""
    if value != "epoch" and not _is_count(value, 1):
        raise ValueError(
            f"`{name}` must be 'epoch' or an integer of at least 1, got {value!r}."
        )


def check_size(name: str, value: Any, least: int = 1, owner: str = "") -> int:
    """As `check_count`, in the words of tables; returns `value` as an int.

    Of an `owner`, a class whose attribute it is, a whole number of another
    type will do.
    """
    whole = bool(owner) and is_number(value) and value == value // 1
    if not ((is_integer(value) or whole) and least <= value < 2**63):
        of = f" of {owner}" if owner else ""
        raise ValueError(
            f"`{name}`={value!r}{of} is not a 64-bit integer of at least "
            f"{least}."
        )
    return int(value)


def check_eager(what: str) -> None:
    """Raises RuntimeError in a graph, which cannot hold what `what` returns."""
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"`{what}` returns Python objects and runs eagerly; call it "
            "outside of the tf.function."
        )


def check_unmasked(name: str, x: Any) -> None:
    """Raises ValueError if NumPy array `x`, or one of a list, masks a value.

    TensorFlow, Keras and NumPy itself drop the mask when they convert it.
    """
    arrays = x if isinstance(x, (list, tuple)) else [x]
    for array in arrays:
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise ValueError(
                f"`{name}` is a masked array, and {np.ma.count_masked(array)} "
                f"of its {array.size} values are masked. Replace them, as by "
                "`filled(0)`, or leave them out, as by `compressed()`."
            )


def check_dtype(
    name: str, x: tf.Tensor, dtypes: Sequence[tf.DType]
) -> tf.Tensor:
    """Returns `x`; TypeError, calling it `name`, unless of one of `dtypes`."""
    if x.dtype not in dtypes:
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, wanted one of "
            f"{', '.join(dtype.name for dtype in dtypes)}"
        )
    return x


def convert(name: str, x: Any, hint: tf.DType | None) -> tf.Tensor:
    """Returns a tensor of `x`, of dtype `hint` if that keeps every number.

    Raises:
        ValueError: A value is masked; calls `x` `name`.
    """
    check_unmasked(name, x)
    # Of NumPy's numbers, a hint would cut fractions and high bits off.
    of_numpy = isinstance(x, (np.ndarray, np.generic)) and x.size
    if hint and of_numpy and not np.can_cast(x.dtype, hint.as_numpy_dtype):
        hint = None
    return tf.convert_to_tensor(x, dtype_hint=hint)


def as_int64(name: str, x: Any, rank: int | None = None) -> tf.Tensor:
    """Returns a tensor of this rank, int64 or int32, as int64."""
    x = convert(name, x, tf.int64)
    if x.dtype not in INT_DTYPES:
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, wanted int64 or int32"
        )
    if rank is not None and x.shape.rank not in (None, rank):
        raise ValueError(
            f"`{name}` must have rank {rank}, found shape {x.shape}"
        )
    return tf.cast(x, tf.int64)


def as_vector(name: str, vector: Any) -> tf.Tensor:
    """Returns one vector, int64 or int32, as int64."""
    return as_int64(name, vector, 1)


def as_dtype_of(name: str, x: Any, dtype: tf.DType, of: str) -> tf.Tensor:
    """Returns numbers or strings `x` as a tensor of `dtype`, each as it is.

    TensorFlow wraps Python's and NumPy's integers around. Messages say that `of`
    has that dtype.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: a number that the integer `dtype` does not have.
    """
    if tf.is_tensor(x):
        if x.dtype != dtype:
            raise TypeError(
                f"`{name}` has dtype {x.dtype.name}, but {of} has {dtype.name}"
            )
        return tf.convert_to_tensor(x)
    if dtype.is_integer:
        # As Python's numbers, which neither round nor wrap around.
        x = np.asarray(x, dtype=object)
        for number in x.flat:
            if not _is_whole(number):
                raise ValueError(
                    f"`{name}` is {number!r}, wanted an integer for {of} of "
                    f"{dtype.name}"
                )
            if not dtype.min <= number <= dtype.max:
                raise ValueError(f"`{name}` is {number}, beyond {dtype.name}")
        x = x.astype(dtype.as_numpy_dtype)
    return tf.convert_to_tensor(x, dtype)


def _is_whole(number: Any) -> bool:
    if isinstance(number, numbers.Integral):
        return True
    return isinstance(number, numbers.Real) and float(number).is_integer()


def after(check: Any, tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, in a graph not before a check, or all of a list, passed.

    Of eager ones, which raise themselves, `tf.debugging` returns None.
    """
    checks = [c for c in tf.nest.flatten(check) if c is not None]
    if not checks:
        return tensor
    with tf.control_dependencies(checks):
        return tf.identity(tensor)
