"""A sketch of a stage: a few random sign projections of every row and the row's root mean square, in float64.

A projection is the sum of a row's values, each with a sign. One wrong value shifts every projection of its row
(Freivalds), so a few numbers a row see every row and every column of a stage of which the file keeps samples alone.
The signs come from a seed by integer arithmetic that any language repeats; harness/store/sketch.c is the other half.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from stages import row_length

PROJECTIONS = 4
GOLDEN, FIRST, SECOND = (np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
CHUNK = 1 << 22  # signs held at a time


def sign_key(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"sketch:{seed}:{name}".encode()).digest()[:8], "big")


def words(key: int, first: int, count: int) -> np.ndarray:
    """Outputs first, first + 1, ... of the generator splitmix64 that starts from `key`; uint64 wraps round."""
    z = np.uint64(key) + np.arange(first + 1, first + 1 + count, dtype=np.uint64) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


def signs(key: int, first: int, rows: int, width: int) -> np.ndarray:
    """[rows, PROJECTIONS, width] of 1 and -1: a projection of a row takes whole words, a set bit is a minus."""
    each = -(-width // 64)
    block = words(key, first * PROJECTIONS * each, rows * PROJECTIONS * each).astype("<u8")
    bits = np.unpackbits(block.view(np.uint8).reshape(rows, PROJECTIONS, each * 8), axis=-1, bitorder="little")
    return 1.0 - 2.0 * bits[..., :width]


def sketch(name: str, seed: int, tensor: torch.Tensor) -> np.ndarray:
    """[rows, PROJECTIONS + 1]: the projections of every row, and its root mean square."""
    width = row_length(name, list(tensor.shape))
    rows = tensor.reshape(-1, width)
    out = np.empty((rows.shape[0], PROJECTIONS + 1))
    key, at_once = sign_key(seed, name), max(1, CHUNK // (width * PROJECTIONS))
    for first in range(0, rows.shape[0], at_once):
        values = rows[first : first + at_once].double().numpy()
        turned = signs(key, first, values.shape[0], width)
        out[first : first + at_once, :-1] = np.matmul(turned, values[:, :, None])[:, :, 0]
        out[first : first + at_once, -1] = np.sqrt(np.square(values).mean(axis=1))
    return out


def sketch_distances(value: np.ndarray, truth: np.ndarray, width: int) -> tuple[float, float]:
    """Relative L2 and the largest, both relative to the norms of the rows; a row's own norm counts as one more."""
    norm = truth[:, -1:] * np.sqrt(width)
    error = np.abs(value - truth)
    error[:, -1] *= np.sqrt(width)
    if not error.any():
        return 0.0, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = np.nan_to_num(error / norm, nan=0.0, posinf=np.inf).max()
    return float(np.linalg.norm(error) / np.sqrt(error.shape[1] * np.square(norm).sum())), float(largest)
