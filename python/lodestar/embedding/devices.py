"""Checks the devices of a table."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops


def check_devices(devices: Any) -> tuple[str, ...]:
    """Returns `devices` as full names of available CPUs and GPUs."""
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise ValueError(
            f"`devices`={devices!r} is not a list of device names."
        )
    if not devices:
        raise ValueError("`devices` must have at least one device, got [].")
    return tuple(_check_device(i, name) for i, name in enumerate(devices))


def _check_device(i: int, name: Any) -> str:
    try:
        spec = tf.DeviceSpec.from_string(name)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"`devices[{i}]`={name!r} is not a device name, such as "
            "'/job:ps/replica:0/task:0/device:CPU:0' or '/CPU:0'."
        ) from error
    if spec.device_type is None:
        spec = spec.replace(device_type="CPU")
    if spec.device_type not in ("CPU", "GPU"):
        raise ValueError(f"`devices[{i}]`={name!r} is not a CPU or GPU.")
    if spec.device_index is None:
        spec = spec.replace(device_index=0)
    known = [d.name for d in tf.config.list_logical_devices(spec.device_type)]
    here = tf.DeviceSpec(replica=0, task=0)
    specs = [
        here.make_merged_spec(tf.DeviceSpec.from_string(name)) for name in known
    ]
    if not any(found.make_merged_spec(spec) == found for found in specs):
        raise ValueError(
            f"`devices[{i}]`={name!r} does not exist, only {known}. Call "
            "tf.config.experimental_connect_to_cluster to add the tasks of a "
            "cluster, or tf.config.set_logical_device_configuration to add "
            "logical devices of this process."
        )
    return spec.to_string()


def check_library(table: str, devices: Sequence[str]) -> None:
    """Checks that all processes of `devices` have loaded this version."""
    here = _version(None)
    for device in dict.fromkeys(map(_cpu_beside, devices)):
        try:
            there = _version(device)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as e:
            raise _refused(
                f"The table '{table}' needs {device}, which has not loaded "
                "lodestar. Import lodestar in that process before its server "
                "starts, or start it with `python -m lodestar.train server`."
            ) from e
        check_version(table, device, there, here)


def on_gpu(device: str | None) -> bool:
    """Whether `device` is a GPU, by its name."""
    if device is None:
        return False
    return tf.DeviceSpec.from_string(device).device_type == "GPU"


def first_gpu(parts: Sequence[Any]) -> str | None:
    """Returns the first device of a table's parts if all are on GPUs, or None."""
    devices = [part.device for part in parts]
    return devices[0] if all(map(on_gpu, devices)) else None


def is_remote(device: str) -> bool:
    """Whether `device` is one of another process, by its name."""
    return tf.DeviceSpec.from_string(device).job not in (None, "localhost")


def _cpu_beside(device: str) -> str:
    """Returns the CPU in the process of a device."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "GPU":
        spec = spec.replace(device_type="CPU", device_index=0)
    return spec.to_string()


def check_version(table: str, device: str, there: str, here: str) -> None:
    """Raises tf.errors.FailedPreconditionError unless versions are equal."""
    if there != here:
        raise _refused(
            f"The table '{table}' needs {device}, which runs lodestar {there}, "
            f"but this process runs lodestar {here}. Install the same version "
            "in all processes."
        )


def _refused(message: str) -> tf.errors.OpError:
    return tf.errors.FailedPreconditionError(None, None, message)


def _version(device: str | None) -> str:
    with tf.init_scope(), tf.device(device):
        return gen_ops.lodestar_library_version().numpy().decode()
