"""The devices that a table's rows may lie on."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops

_FIELDS = ("job", "replica", "task", "device_type", "device_index")


def check_devices(devices: Any) -> tuple[str, ...]:
    """Returns `devices`, each by a name that TensorFlow takes.

    Raises:
        ValueError: They are not a list of CPUs and GPUs that there are.
    """
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise ValueError(
            f"`devices`={devices!r} is not a list of names of devices."
        )
    if not devices:
        raise ValueError("`devices` is empty; wanted one device at least.")
    return tuple(_check_device(i, name) for i, name in enumerate(devices))


def _check_device(i: int, name: Any) -> str:
    try:
        spec = tf.DeviceSpec.from_string(name)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"`devices[{i}]`={name!r} is not the name of a device, such as "
            "'/job:ps/replica:0/task:0/device:CPU:0' or '/CPU:0'."
        ) from error
    if spec.device_type is None:
        spec = spec.replace(device_type="CPU")
    if spec.device_type not in ("CPU", "GPU"):
        raise ValueError(
            f"`devices[{i}]`={name!r} is no CPU or GPU, in whose memory rows "
            "lie."
        )
    if spec.device_index is None:
        spec = spec.replace(device_index=0)
    known = [d.name for d in tf.config.list_logical_devices(spec.device_type)]
    if not any(_is(tf.DeviceSpec.from_string(k), spec) for k in known):
        raise ValueError(
            f"`devices[{i}]`={name!r} is not there; there are {known}. Tasks "
            "of a cluster are there after tf.config."
            "experimental_connect_to_cluster, logical devices of this process "
            "after tf.config.set_logical_device_configuration."
        )
    return spec.to_string()


def _is(known: tf.DeviceSpec, wanted: tf.DeviceSpec) -> bool:
    return all(
        getattr(wanted, field) in (None, getattr(known, field) or 0)
        or getattr(wanted, field) == getattr(known, field)
        for field in _FIELDS
    )


def check_library(table: str, devices: Sequence[str]) -> None:
    """Checks that the processes of all `devices` have loaded this library.

    Raises:
        tf.errors.FailedPreconditionError: Names the one that has not, and both
            versions.
    """
    here = _version(None)
    for device in dict.fromkeys(map(_cpu_beside, devices)):
        try:
            there = _version(device)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as e:
            raise _refused(
                f"The table '{table}' is to lie on {device}, which knows no ops "
                "of lodestar: import lodestar in that process before its "
                "server starts, or start it with `python -m lodestar.train "
                "server`."
            ) from e
        check_version(table, device, there, here)


def on_gpu(device: str | None) -> bool:
    """Whether it is a GPU, by its name."""
    if device is None:
        return False
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def _cpu_beside(device: str) -> str:
    """The CPU of the process that a device is in."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "GPU":
        spec = spec.replace(device_type="CPU", device_index=0)
    return spec.to_string()


def check_version(table: str, device: str, there: str, here: str) -> None:
    """Raises tf.errors.FailedPreconditionError unless versions are equal."""
    if there != here:
        raise _refused(
            f"The table '{table}' is to lie on {device}, which runs lodestar "
            f"{there}, but this process runs lodestar {here}: install one "
            "version in all of them."
        )


def _refused(message: str) -> tf.errors.OpError:
    return tf.errors.FailedPreconditionError(None, None, message)


def _version(device: str | None) -> str:
    with tf.init_scope(), tf.device(device):
        return gen_ops.lodestar_library_version().numpy().decode()
