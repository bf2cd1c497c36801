"""The stages of an oracle in forward order, and which of them are stored whole."""

from __future__ import annotations

import fnmatch
import hashlib
import math
from dataclasses import dataclass

BOTH = ("k_proj", "attn.v", "k_norm", "k_rope", "rope.cos", "rope.sin")  # rows of the context and of the block
CONVOLVED = ("attn.norm", "attn.o_proj", "mlp.norm", "mlp.down")  # what a convolution takes

BEFORE_LAYERS = ("ctx.fc", "ctx.features", "rope.inv_freq", "rope.cos", "rope.sin")
IN_LAYER = (
    "attn.norm", "attn.conv_dyn", "attn.conv_in", "attn.q_proj", "attn.k_proj", "attn.v", "attn.q_norm", "attn.k_norm",
    "attn.q_rope", "attn.k_rope", "attn.context", "attn.o_proj", "attn.conv_out", "attn.residual", "mlp.norm",
    "mlp.conv_dyn", "mlp.conv_in", "mlp.gate", "mlp.up", "mlp.act", "mlp.down", "mlp.conv_out", "out",
)  # fmt: skip

# What is stored whole beside a sampling stride, unless a case names its own.
FULL_STAGES = ("ctx.features", "input", "final", "layers.*.out")
# Small, and read as a whole: a sampled list of tokens would tell nothing.
ALWAYS_WHOLE = ("rope.inv_freq", "select.*", "markov.tokens", "confidence.*")
TABLES, TABLE_LIMIT = ("rope.cos", "rope.sin"), 1 << 16  # tables of that many values are small too
ROW_LIMIT = 1 << 16  # longer rows (logits of a real vocabulary) are not stored whole beside samples


def stage_names(layers: int, family: str, proposals: list[str], embedded: bool = False) -> list[str]:
    """Every stage that an oracle of this family holds, in forward order; `embedded`: from the target's table on."""
    inside = [name for name in IN_LAYER if family == "dflash2" or ".conv_" not in name]
    names = [f"layers.{layer}.{name}" for layer in range(layers) for name in inside]
    return [*BEFORE_LAYERS, *(["input"] if embedded else []), *names, "final", *proposals, "kv.k", "kv.v"]


@dataclass(frozen=True)
class Storage:
    """What a case stores of a stage: all of it, or samples and some whole rows."""

    stride: int  # wanted
    full_stages: list[str]
    seed: int
    context: int
    taps: int = 1  # of a convolution: that many rows of its inputs make one of its rows

    def samples(self, name: str, shape: list[int]) -> tuple[int, int]:
        """Stride and offset; 1 and 0 for a stage that is stored whole."""
        globs = (*ALWAYS_WHOLE, *self.full_stages)
        total = math.prod(shape)
        if any(fnmatch.fnmatchcase(name, glob) for glob in globs) or (name in TABLES and total <= TABLE_LIMIT):
            return 1, 0
        stride = sample_stride(self.stride, row_length(name, shape), total)
        return stride, sample_offset(self.seed, name, stride, total) if stride > 1 else 0

    def sampled(self, name: str, shape: list[int]) -> bool:
        return self.samples(name, shape)[0] > 1

    def rows(self, name: str, shape: list[int]) -> list[int]:
        """The rows of a sampled stage that are stored whole: one of the context and the block's last, and of a
        convolution's inputs as many before it as the convolution takes."""
        if row_length(name, shape) > ROW_LIMIT:
            return []
        context, last = self.context // 2, shape[0] - 1
        if name in ("kv.k", "kv.v"):
            return [layer * self.context + context for layer in range(shape[0])]
        if name.startswith("ctx."):
            return [context]
        if name.endswith(BOTH):
            return [context, last]
        before = self.taps if name.endswith(CONVOLVED) else 1
        return list(range(max(0, last + 1 - before), last + 1))


def sample_offset(seed: int, name: str, stride: int, total: int) -> int:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % min(stride, total)


def row_length(name: str, shape: list[int]) -> int:
    """Values of one row: a token's, in the cache a token's of one layer; every frequency is a row of its own."""
    if name == "rope.inv_freq":
        return 1
    if name in ("kv.k", "kv.v"):
        return math.prod(shape[2:])
    return math.prod(shape[1:]) if len(shape) > 1 else shape[0]


def sample_stride(wanted: int, row: int, total: int) -> int:
    """The stride nearest to the one wanted without a common divisor with a row's length, so that samples wander
    through the columns; 1 is the whole tensor."""
    near = (stride for distance in range(wanted) for stride in (wanted + distance, wanted - distance))
    return min(next(stride for stride in near if math.gcd(stride, row) == 1), total)
