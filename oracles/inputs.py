"""Makes the inputs of an oracle from a seed.

Tapped hidden states of a real target have a few channels many times larger than the rest and a heavy tail within each
channel; embedded blocks are small and hold the same MASK row again and again. Every value is exact in bfloat16, so the
float64, float32 and bfloat16 runs of the reference read the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from embedding import Embedding
from spacing import spaced_positions

PROFILES = {
    # rms of ordinary channels, factor of outlier channels, share of outlier channels
    "unit": (0.9, 20.0, 0.004),
    "hot": (25.0, 60.0, 0.004),
}
EMBEDDING_RMS = 0.25


@dataclass
class Inputs:
    target_hidden: torch.Tensor  # [C, T * H], bfloat16
    noise_embedding: torch.Tensor  # [B, H], bfloat16, already scaled
    positions: torch.Tensor  # [C + B], int64, context then block
    embedding: Embedding | None = None  # where the target's table gives the block's rows

    def noise(self, dtype: torch.dtype) -> torch.Tensor:
        """What layer 0 starts from in a run of this dtype, [B, H]."""
        return self.noise_embedding.to(dtype) if self.embedding is None else self.embedding.rows(dtype)


def to_bfloat16(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(torch.bfloat16)


def heavy_tailed(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Unit-variance Student t with five degrees of freedom: tails like those of hidden states, all moments we need."""
    normal = rng.standard_normal((rows, columns))
    chi2 = rng.chisquare(5.0, (rows, columns))
    return normal / np.sqrt(chi2 / 5.0) * np.sqrt(3.0 / 5.0)


def make_inputs(
    *, seed: int, profile: str, context: int, start: int, block: int, hidden: int, taps: int, embedding_scale: float,
    gaps: list[list[int]] = (),
) -> Inputs:  # fmt: skip
    rms, outlier, share = PROFILES[profile]
    rng = np.random.Generator(np.random.Philox(seed))

    states = np.empty((context, taps * hidden))
    for tap in range(taps):
        channel = rms * np.exp(0.3 * rng.standard_normal(hidden))
        count = max(1, round(share * hidden))
        channel[rng.choice(hidden, size=count, replace=False)] *= outlier
        outliers = channel > 5.0 * rms
        states[:, tap * hidden : (tap + 1) * hidden] = channel * heavy_tailed(rng, context, hidden)
        # outlier channels of real models keep one sign from token to token
        signs = rng.choice([-1.0, 1.0], size=hidden)
        columns = tap * hidden + np.flatnonzero(outliers)
        states[:, columns] = 0.5 * states[:, columns] + np.sqrt(0.75) * (channel * signs)[outliers]

    embeddings = to_bfloat16(EMBEDDING_RMS / max(1.0, abs(embedding_scale)) * heavy_tailed(rng, 2, hidden))
    scaled = (embeddings.float() * embedding_scale).to(torch.bfloat16)
    noise = torch.cat([scaled[:1], scaled[1:].expand(block - 1, hidden)]).contiguous()
    return Inputs(to_bfloat16(states), noise, spaced_positions(context, start, block, gaps))


def make_anchor(seed: int, vocab: int, mask: int) -> int:
    """The id of the block's first token: any of the vocabulary but the mask. Its own stream: inputs stay as they are."""
    rng = np.random.Generator(np.random.Philox([seed, 1]))
    token = int(rng.integers(vocab - 1 if mask < vocab else vocab))
    return token + (mask < vocab and token >= mask)
