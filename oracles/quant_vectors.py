"""Writes fixtures/quant/*.bin: inputs, and the q8_0 and q4_0 blocks that the gguf package makes of them.

The encoders of impl/weights/quant.c must give these bytes. The inputs are chosen for what an encoder can get wrong: rounding
that is nearly or exactly a tie, the order of the float32 operations, signs of zero and of the extreme value, subnormal
scales, inverses that overflow, and scales beyond f16. Run it again with

    python oracles/quant_vectors.py --out fixtures/quant

Exit codes: 0 done, 2 usage.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

BLOCK = 32
SEED = 20260


def ordinary(rng: np.random.Generator) -> np.ndarray:
    """Weights as they are: normal, heavy-tailed, and rounded to bf16."""
    normal = rng.standard_normal((96, BLOCK)) * 0.02
    tailed = rng.standard_t(3, (96, BLOCK)) * np.exp2(rng.integers(-8, 8, (96, 1)))
    rounded = (rng.standard_normal((64, BLOCK)).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.concatenate([normal, tailed, rounded])


def sizes(rng: np.random.Generator) -> np.ndarray:
    """Blocks of every binary size of float32: subnormal inputs, inverses that overflow, f16 scales that are subnormal, zero,
    or beyond f16. The uppermost are as large as finite values get."""
    exponents = np.concatenate([np.arange(-149, -110, 1), np.arange(-110, 128, 4), np.arange(-26, -8), np.arange(8, 26)])
    blocks = np.ldexp(rng.uniform(-1, 1, (len(exponents), BLOCK)), exponents[:, None])
    limit = np.full((2, BLOCK), np.finfo(np.float32).max)
    limit[1, ::2] *= -1
    return np.concatenate([blocks, limit])


def ties(rng: np.random.Generator) -> np.ndarray:
    """x / d exactly on halves, and one unit in the last place to either side of them."""
    halves = np.arange(-126.5, 127, 1, dtype=np.float32)
    blocks = []
    for scale in (1.0, 0.25, 2.0**-20):
        middle = halves[rng.permutation(len(halves))[: 4 * (BLOCK - 1)]].reshape(4, BLOCK - 1)
        for values in (middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf) * np.sign(middle))):
            blocks.append(np.concatenate([np.full((4, 1), 127, np.float32), values], axis=1) * np.float32(scale))
    nibbles = np.resize(np.arange(-7.5, 8, 1, dtype=np.float32), BLOCK - 1)
    for extreme in (8, -8):
        for values in (nibbles, np.nextafter(nibbles, np.float32(-99)), np.nextafter(nibbles, np.float32(99))):
            blocks.append(np.concatenate([[np.float32(extreme)], values])[None])
    return np.concatenate(blocks)


def orders(rng: np.random.Generator) -> np.ndarray:
    """Blocks, found by search, whose bytes tell the float32 operations and their order from what they might be taken for:
    x / d for x * (1 / d), a fused multiply-add, amax * (1 / 127) for amax / 127."""
    one, half = np.float32(1), np.float32(8.5)
    extreme = np.exp2(rng.uniform(-6, 2, (4000, 1))).astype(np.float32)
    place = rng.integers(-2, 3, (4000, BLOCK - 1), dtype=np.int32)

    def near(steps: np.ndarray, d: np.ndarray) -> np.ndarray:
        """x within two units of the last place of a tie, behind the extreme value."""
        x = (steps * d).astype(np.float32)
        return np.concatenate([extreme, (x.view(np.int32) + place).view(np.float32)], axis=1)

    def eights(x: np.ndarray, d: np.ndarray) -> np.ndarray:
        quotient = np.abs(x * (one / d))
        return np.floor(quotient) + (quotient - np.floor(quotient) >= 0.5)

    d8, d4 = extreme / np.float32(127), extreme / np.float32(-8)
    x8 = near(rng.integers(0, 126, (4000, BLOCK - 1)) + 0.5, d8)
    x4 = near(rng.integers(-7, 8, (4000, BLOCK - 1)) + 0.5, d4)
    usual = np.trunc(x4 * (one / d4) + half)
    fused = np.trunc((x4.astype(np.float64) * (one / d4).astype(np.float64) + 8.5).astype(np.float32))
    found = []
    for blocks, differs in (
        (x8, eights(x8, d8) != np.floor(np.abs(x8 / d8) + 0.5)),
        (x8, eights(x8, d8) != eights(x8, extreme * (one / np.float32(127)))),
        (x4, usual != np.trunc(x4 / d4 + half)),
        (x4, usual != fused),
    ):
        rows = np.flatnonzero(differs.any(axis=1))[:6]
        assert len(rows) == 6, "too few blocks tell the orders apart"
        found.append(blocks[rows])
    return np.concatenate(found)


def signs(rng: np.random.Generator) -> np.ndarray:
    """Zeros of both signs; the extreme value negative, positive, and twice with either sign first; a single value."""
    zero = np.zeros(BLOCK, np.float32)
    blocks = [zero, -zero, np.where(np.arange(BLOCK) % 2 == 0, zero, -zero)]
    for first, second in ((-1, 1), (1, -1), (-1, -1), (1, 1)):
        block = rng.uniform(-0.9, 0.9, BLOCK).astype(np.float32)
        block[5], block[20] = first, second
        blocks.append(block)
    for at in (0, 15, 16, 31):
        for value in (1.0, -1.0, 3e-5, -65504.0):
            block = zero.copy()
            block[at] = value
            blocks.append(block)
    return np.stack(blocks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    parts = [make(rng).astype(np.float32) for make in (ordinary, sizes, ties, signs, orders)]
    inputs = np.concatenate(parts)
    assert np.isfinite(inputs).all()
    (out / "inputs_f32.bin").write_bytes(inputs.astype("<f4").tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # inverses and scales that overflow are among the inputs
        for name in ("Q8_0", "Q4_0"):
            blocks = quantize(inputs, GGMLQuantizationType[name])
            (out / f"{name.lower()}.bin").write_bytes(blocks.tobytes())
    print(f"{len(inputs)} blocks: " + ", ".join(f"{len(part)}" for part in parts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
