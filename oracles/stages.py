"""The stages of an oracle in forward order, and which of them are stored whole."""

from __future__ import annotations

import fnmatch
import hashlib
import math

BEFORE_LAYERS = ("ctx.fc", "ctx.features", "rope.inv_freq", "rope.cos", "rope.sin")
IN_LAYER = (
    "attn.norm", "attn.conv_dyn", "attn.conv_in", "attn.q_proj", "attn.k_proj", "attn.v", "attn.q_norm", "attn.k_norm",
    "attn.q_rope", "attn.k_rope", "attn.context", "attn.o_proj", "attn.conv_out", "attn.residual", "mlp.norm",
    "mlp.conv_dyn", "mlp.conv_in", "mlp.gate", "mlp.up", "mlp.act", "mlp.down", "mlp.conv_out", "out",
)  # fmt: skip

# What is stored whole beside a sampling stride, unless a case names its own.
FULL_STAGES = ("ctx.features", "input", "final", "layers.*.out")
# Small, and read as a whole: a sampled table or a sampled list of tokens would tell nothing.
ALWAYS_WHOLE = ("rope.*", "select.*", "markov.tokens", "confidence.*")


def stage_names(layers: int, family: str, proposals: list[str], embedded: bool = False) -> list[str]:
    """Every stage that an oracle of this family holds, in forward order; `embedded`: from the target's table on."""
    inside = [name for name in IN_LAYER if family == "dflash2" or ".conv_" not in name]
    names = [f"layers.{layer}.{name}" for layer in range(layers) for name in inside]
    return [*BEFORE_LAYERS, *(["input"] if embedded else []), *names, "final", *proposals, "kv.k", "kv.v"]


def stored_whole(name: str, full_stages=FULL_STAGES) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in (*ALWAYS_WHOLE, *full_stages))


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


def sample_stride(wanted: int, row: int) -> int:
    """The stride nearest to the one wanted that samples every row (at most its length) and every column (no common
    divisor with its length); 1, which is the whole tensor, when there is none."""
    for distance in range(row + wanted):
        for stride in (wanted + distance, wanted - distance):
            if 1 <= stride <= row and math.gcd(stride, row) == 1:
                return stride
    return 1
