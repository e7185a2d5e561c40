"""Puts vectors on the devices chunk by chunk, so that the host never holds more than one beside what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def place(pieces: Iterator[np.ndarray], shape: tuple[int, int, int], sharding: Any) -> jax.Array:
    """Pieces of any length as one device array [C, chunk, E], the rest zero; one chunk at a time on the host."""
    span = {
        device: index[0].indices(shape[0])[:2]
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    }
    buffer = None
    for number, chunk_NE in enumerate(_rechunk(pieces, shape[1])):
        if buffer is None:
            buffer = {
                device: jnp.zeros((stop - start, *shape[1:]), chunk_NE.dtype, device=device)
                for device, (start, stop) in span.items()
            }
        for device, (start, stop) in span.items():
            if start <= number < stop:
                buffer[device] = _put(buffer[device], chunk_NE, number - start)
    return jax.make_array_from_single_device_arrays(shape, sharding, list(buffer.values()))


@partial(jax.jit, donate_argnums=0)
def _put(buffer_CNE, chunk_NE, at):
    return jax.lax.dynamic_update_index_in_dim(buffer_CNE, chunk_NE, at, 0)


def _rechunk(pieces: Iterator[np.ndarray], chunk: int) -> Iterator[np.ndarray]:
    """The same rows in arrays of exactly `chunk` rows, the last filled up with zeros."""
    chunk_NE, filled = None, 0
    for piece_NE in pieces:
        while len(piece_NE):
            if chunk_NE is None:
                chunk_NE, filled = np.zeros((chunk, piece_NE.shape[1]), piece_NE.dtype), 0
            taken = min(chunk - filled, len(piece_NE))
            chunk_NE[filled : filled + taken] = piece_NE[:taken]
            piece_NE, filled = piece_NE[taken:], filled + taken
            if filled == chunk:
                yield chunk_NE
                chunk_NE = None
    if chunk_NE is not None:
        yield chunk_NE
