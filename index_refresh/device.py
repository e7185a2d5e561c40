"""Where a child embeds: chosen before it starts, through the environment that jax reads when it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PLACE = re.compile(r"cpu|gpu:(?P<number>[0-9]+)(:(?P<fraction>0?\.[0-9]+|1(\.0*)?))?")


class DeviceError(ValueError):
    """A device that cannot be given to a child process."""


def environment(device: str, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`given` with what makes a child's jax see only this device.

    cpu: no accelerator. gpu:N: the N-th GPU that this process may see, all of its memory. gpu:N:0.3: the same GPU as
    training perhaps, with three tenths of its memory (training must leave that much: XLA_PYTHON_CLIENT_MEM_FRACTION).
    Raises DeviceError.
    """
    place = PLACE.fullmatch(device)
    if place is None:
        raise DeviceError(f"found device {device!r}, wanted 'cpu', 'gpu:1', or 'gpu:0:0.3' for a share of its memory")
    if place["number"] is None:
        return {**given, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    number, visible = int(place["number"]), given.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else None
    if visible == "" or (names and number >= len(names)):
        raise DeviceError(f"found device {device!r}, but CUDA_VISIBLE_DEVICES={visible!r} leaves no GPU {number}")
    changed = {"JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": names[number] if names else str(number)}
    if place["fraction"]:
        changed["XLA_PYTHON_CLIENT_MEM_FRACTION"] = place["fraction"]
    return {**given, **changed}


def refuse_tpu(platform: str) -> None:
    """Raises DeviceError where this process owns the accelerators alone, as on TPU."""
    if platform == "tpu":
        raise DeviceError(
            "found training on TPU, where one process owns the chips and a child could not open them: use engine "
            "interleave (the same chips, between steps) or external with `realm refresh RUN` as a job on its own slice"
        )
