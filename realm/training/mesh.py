"""One code path from one device to many: a one-axis mesh, batches split over it, parameters on every device."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from realm.protocols import Arrays
from realm.retrieve import device_arrays
from realm.training.processes import several


class MeshError(ValueError):
    """More devices than there are, or rows that do not split over them."""


def data_mesh(devices: int | None = None) -> Mesh:
    """A mesh with the single axis `data` over the first `devices` devices (None: all of them).

    Raises MeshError where there are fewer.
    """
    available = jax.devices()
    count = len(available) if devices is None else devices
    if not 1 <= count <= len(available):
        raise MeshError(f"{count} devices asked, {len(available)} available ({available[0].platform})")
    if several():  # rows of one process lie side by side: slots count on it
        if count < len(available):
            raise MeshError(f"{count} devices asked of {len(available)} in {jax.process_count()} processes, wanted all")
        available = sorted(available, key=lambda device: (device.process_index, device.id))
        return Mesh(np.array(available), ("data",), axis_types=(AxisType.Auto,))
    return jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=available[:count])


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Every leaf whole on every device. In a job of several processes each brings the same values, without waiting for
    the others."""
    whole = NamedSharding(mesh, PartitionSpec())
    if mesh.is_multi_process:
        return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(whole, np.asarray(leaf)), tree)
    return jax.device_put(tree, whole)


def shard_batch(batch: Arrays, mesh: Mesh) -> Arrays:
    """This process's rows of each array, split over the `data` axis; MeshError when they do not divide evenly.

    What is named `host_` stays here.
    """
    batch = device_arrays(batch)
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    local = mesh.local_mesh.size
    for name, array in batch.items():
        if np.shape(array)[0] % local:
            raise MeshError(f"{name} has {np.shape(array)[0]} rows, which do not split over {local} devices")
    return {name: jax.make_array_from_process_local_data(sharding, array) for name, array in batch.items()}
