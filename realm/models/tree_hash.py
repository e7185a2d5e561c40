"""A fingerprint of parameters: proof that what should stay frozen did."""

from __future__ import annotations

import hashlib
import json

import jax
import numpy as np

from realm.protocols import Params


def tree_hash(params: Params) -> str:
    """sha256 in hexadecimal over names, types, shapes and bytes of a tree of arrays; not over the order of its keys.

    One changed bit of one weight gives another hash. A tree without arrays has one too.
    """
    digest = hashlib.sha256()
    named = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]
    for name, leaf in sorted(named, key=lambda pair: pair[0]):
        array = np.asarray(leaf)
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
