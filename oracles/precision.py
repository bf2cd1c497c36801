"""The precision modes: which matrix is held how, and its values after being held that way.

The encoders are those of the `gguf` package. A mode's truth is the float64 run of a model whose matrices were encoded
and decoded once: what is left between it and a drafter that multiplies from the blocks is arithmetic.
"""

from __future__ import annotations

import numpy as np
import torch

MODES = ("stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc")
BLOCK = 32  # values of a row that share a scale


class PrecisionError(ValueError):
    """A matrix that the mode cannot hold."""


def held_as(mode: str, name: str, shape: list[int]) -> str:
    """`file`, `f32`, `bf16`, `q8_0` or `q4_0`: how the mode holds the tensor `name` of a checkpoint."""
    if mode == "stored" or len(shape) != 2 or "_codebook" in name:
        return "file"
    if mode == "f32" or "confidence_head." in name:
        return "f32"
    if ".markov_w1." in name:
        return "bf16"
    if ".markov_w2." in name:
        return "bf16" if mode == "bf16" else "q8_0"
    if mode == "mixed":
        return "q8_0" if ".mlp." in name else "bf16"
    if mode == "fc":
        return "bf16" if name == "fc.weight" else "q8_0"
    return mode


def decoded(mode: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the values that remain when `mode` holds it, exact in float32."""
    kind = held_as(mode, name, list(tensor.shape))
    if kind in ("file", "f32"):
        return tensor
    if kind == "bf16":
        result = tensor.to(torch.bfloat16)
    else:
        from gguf import quants  # only the quantised modes need the package

        if tensor.shape[-1] % BLOCK:
            raise PrecisionError(
                f"{name} has rows of {tensor.shape[-1]} values; mode {mode} holds it as {kind}, in blocks of {BLOCK}. "
                "Use bf16 or f32 for this checkpoint."
            )
        form = {"q8_0": quants.GGMLQuantizationType.Q8_0, "q4_0": quants.GGMLQuantizationType.Q4_0}[kind]
        values = np.ascontiguousarray(tensor.to(torch.float32).numpy())
        result = torch.from_numpy(quants.dequantize(quants.quantize(values, form), form).reshape(values.shape))
    if not torch.isfinite(result).all():
        raise PrecisionError(f"{name} holds a value that {kind} turns into an infinity. Use f32 for this checkpoint.")
    return result
