"""Who equals whom: byte-identical blocks, salient spans of the same wordpieces, and the share a document falls into.

All by stable hashes (blake2b of bytes, a fixed 64-bit mix of wordpiece ids) and one sort, so that the answers do not
depend on the machine, the run or the order of documents, and millions of rows need no Python loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

DIGEST_BYTES = 16
CHUNK = 1 << 20
BUCKET = 1 << 20  # hashes that are sorted at once


def block_digest(title: bytes, text: bytes) -> bytes:
    """16 bytes that two blocks share exactly when title and text are byte-identical."""
    return hashlib.blake2b(
        len(title).to_bytes(8, "little") + title + text, digest_size=DIGEST_BYTES, person=b"block"
    ).digest()


def id_hash(document_id: str) -> int:
    """A stable 64-bit hash of a document id."""
    return int.from_bytes(hashlib.blake2b(document_id.encode(), digest_size=8, person=b"document").digest(), "little")


def is_held_out(document_id: str, share: float) -> bool:
    """Whether a document falls into the held-out share: a function of its id alone."""
    return id_hash(document_id) / 2.0**64 < share


def smallest_equal(half_N2: np.ndarray, most: int = BUCKET) -> np.ndarray:
    """int32 [N]: for each row the smallest row with the same digest (16 bytes a row, as uint64 [N, 2])."""
    smallest_N = np.empty(len(half_N2), np.int32)
    for row_G in in_buckets(half_N2[:, 0], most):
        half_G2 = half_N2[row_G]
        order_G = np.lexsort((half_G2[:, 0], half_G2[:, 1]))  # stable: equal rows stay in order, the smallest in front
        sorted_G2 = half_G2[order_G]
        new_G = np.ones(len(order_G), bool)
        new_G[1:] = (sorted_G2[1:] != sorted_G2[:-1]).any(axis=1)
        smallest_N[row_G[order_G]] = row_G[order_G[new_G]][np.cumsum(new_G) - 1]
    return smallest_N


def in_buckets(hash_P: np.ndarray, most: int = BUCKET) -> Iterator[np.ndarray]:
    """The places of all hashes, ascending, a bucket of about `most` at a time; equal hashes share a bucket."""
    buckets = np.uint64(max(1, -(-len(hash_P) // most)))
    for bucket in range(int(buckets)):
        yield np.concatenate(
            [
                np.flatnonzero(hash_P[low : low + CHUNK] % buckets == np.uint64(bucket)) + low
                for low in range(0, max(1, len(hash_P)), CHUNK)
            ]
        )


def span_hashes(token_flat: np.ndarray, start_P: np.ndarray, length_P: np.ndarray) -> np.ndarray:
    """uint64 [P]: a stable hash of each span's wordpieces, given where it starts in `token_flat` and how long it is."""
    hash_P = np.empty(len(start_P), np.uint64)
    for low in range(0, len(start_P), CHUNK):
        start, length = start_P[low : low + CHUNK], length_P[low : low + CHUNK]
        mixed = length.astype(np.uint64)
        for position in range(int(length.max(initial=0))):
            inside = length > position
            token = token_flat[start[inside] + position].astype(np.uint64)
            mixed[inside] = _mix(mixed[inside] ^ (token + np.uint64(1)))
        hash_P[low : low + CHUNK] = mixed
    return hash_P


def _mix(value: np.ndarray) -> np.ndarray:
    """The splitmix64 step: a bijection of 64-bit words that spreads every bit."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def other_holders(hash_P: np.ndarray, group_P: np.ndarray, counts_P: np.ndarray) -> np.ndarray:
    """int32 [P]: how many groups other than its own hold a span of the same hash, where only spans that `counts_P`
    marks make a group a holder."""
    order_P = np.lexsort((~counts_P, group_P, hash_P))  # within a group those that count come first
    hash_sorted, group_sorted, counts_sorted = hash_P[order_P], group_P[order_P], counts_P[order_P]
    new_hash = np.ones(len(order_P), bool)
    new_hash[1:] = hash_sorted[1:] != hash_sorted[:-1]
    new_pair = new_hash.copy()
    new_pair[1:] |= group_sorted[1:] != group_sorted[:-1]
    holds_pair = counts_sorted[new_pair]
    which, pair = np.cumsum(new_hash) - 1, np.cumsum(new_pair) - 1
    holders = np.bincount(which[new_pair], weights=holds_pair, minlength=int(new_hash.sum())).astype(np.int32)
    other_P = np.empty(len(order_P), np.int32)
    other_P[order_P] = holders[which] - holds_pair[pair]
    return other_P


def pair_hash(first_P: np.ndarray, second_P: np.ndarray) -> np.ndarray:
    """uint64 [P]: a stable hash of two hashes; their order matters."""
    return _mix(_mix(first_P) ^ second_P)
