"""A block drafter's layers as plain PyTorch modules with a static cache of the context, for times alone.

The reference (reference.py) is what values are judged by; it needs its own package and makes a new cache in every
call, so it cannot be captured into a CUDA graph. This model does the work of forward_round and nothing else: products
of B rows, keys and values of C + B rows of which C are cached, norms, rotation, attention, the convolutions of DFlash2.
Where PyTorch offers a choice the quicker one is taken. test_plain_block.py holds it against stored oracles.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch.nn import functional

import config_text
from refusal import Refused

FAMILIES = {"DFlashDraftModel": 0, "DFlash2DraftModel": 2}


class Shape:
    """What of config.json the layers need; refuses what this model has no code for."""

    def __init__(self, directory: Path):
        path = directory / "config.json"
        try:
            raw = config_text.parse(path.read_bytes(), path)
        except OSError as error:
            raise Refused(f"{path}: cannot be read ({error}). Expected the config of a checkpoint.") from error
        nested = raw.get("dflash_config") or {}
        family = raw.get("architectures", [""])[0]
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        if family not in FAMILIES or nested.get("projector_type") == "dspark":
            raise Refused(f"{path}: the architecture is {family!r}; the plain model covers {', '.join(FAMILIES)}.")
        theta = raw.get("rope_theta") or rope.get("rope_theta")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if theta is None or kind != "default" or rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
            raise Refused(f"{path}: the rotation is {rope}; the plain model covers the default one of whole heads.")
        self.hidden = raw["hidden_size"]
        self.heads = raw["num_attention_heads"]
        self.key_heads = raw["num_key_value_heads"]
        self.head = raw.get("head_dim") or self.hidden // self.heads
        self.layers = raw["num_hidden_layers"]
        self.block = nested.get("block_size", raw.get("block_size"))
        self.taps = len(nested.get("target_layer_ids", raw.get("target_layer_ids")))
        self.eps = raw["rms_norm_eps"]
        self.theta = float(theta)
        self.convolved = FAMILIES[family] == 2
        self.taps_of_conv = nested.get("conv_kernel_size", 0)
        self.group = nested.get("conv_group_size", 0)
        kinds = raw.get("layer_types") or ["full_attention"] * self.layers
        sliding = [kind == "sliding_attention" for kind in kinds]
        self.window = [raw["sliding_window"] if slides else 0 for slides in sliding]
        causal = nested.get("is_causal", raw.get("is_causal"))
        self.causal = [slides if causal is None else causal for slides in sliding]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [rows, heads, hd]; cos and sin [rows, 1, hd]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Convolution(torch.nn.Module):
    def __init__(self, weights: dict, prefix: str, shape: Shape):
        super().__init__()
        self.register_buffer("base", weights[prefix + "base_kernel"])  # [2, k, H]
        self.register_buffer("projection", weights[prefix + "kernel_projection.weight"])
        self.taps, self.group = shape.taps_of_conv, shape.group

    def kernels(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.projection).view(x.shape[0], 2, self.taps, -1)

    def forward(self, x: torch.Tensor, dynamic: torch.Tensor, half: int) -> torch.Tensor:
        rows, hidden = x.shape
        y = torch.zeros_like(x)
        for tap in range(min(self.taps, rows)):
            shifted = functional.pad(x, (0, 0, tap, 0))[:rows]
            kernel = dynamic[:, half, tap, :, None].expand(-1, -1, self.group).reshape(rows, hidden)
            y = y + (self.base[half, tap] + kernel) * shifted
        return y


class Layer(torch.nn.Module):
    def __init__(self, weights: dict, layer: int, shape: Shape, capacity: int, like: torch.Tensor):
        super().__init__()
        prefix = f"layers.{layer}."
        self.shape = shape
        for name in ("q", "k", "v", "o"):
            self.register_buffer(name, weights[f"{prefix}self_attn.{name}_proj.weight"])
            self.register_buffer(f"{name}_bias", weights.get(f"{prefix}self_attn.{name}_proj.bias"))
        for name in ("gate", "up", "down"):
            self.register_buffer(name, weights[f"{prefix}mlp.{name}_proj.weight"])
        for name in ("q_norm", "k_norm"):
            self.register_buffer(name, weights[f"{prefix}self_attn.{name}.weight"])
        self.register_buffer("input_norm", weights[f"{prefix}input_layernorm.weight"])
        self.register_buffer("post_norm", weights[f"{prefix}post_attention_layernorm.weight"])
        self.attention_conv = Convolution(weights, f"{prefix}attention_conv.", shape) if shape.convolved else None
        self.mlp_conv = Convolution(weights, f"{prefix}mlp_conv.", shape) if shape.convolved else None
        self.register_buffer("keys", like.new_zeros(shape.key_heads, capacity, shape.head))
        self.register_buffer("values", like.new_zeros(shape.key_heads, capacity, shape.head))

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.shape.eps)

    def store(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor) -> None:
        """Keys and values of x, which go to these rows of the cache."""
        s = self.shape
        keys = functional.linear(x, self.k, self.k_bias).view(-1, s.key_heads, s.head)
        values = functional.linear(x, self.v, self.v_bias).view(-1, s.key_heads, s.head)
        self.keys.index_copy_(1, rows, rotate(self.norm(keys, self.k_norm), cos, sin).transpose(0, 1))
        self.values.index_copy_(1, rows, values.transpose(0, 1))

    def attend(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor,
               mask: torch.Tensor | None) -> torch.Tensor:  # fmt: skip
        """The query heads of one key head are taken as rows of one matrix, so that keys are not copied for each."""
        s, count = self.shape, x.shape[0]
        shared = s.heads // s.key_heads
        queries = functional.linear(x, self.q, self.q_bias).view(count, s.heads, s.head)
        queries = rotate(self.norm(queries, self.q_norm), cos, sin).view(count, s.key_heads, shared, s.head)
        self.store(x, cos, sin, rows)
        queries = queries.permute(1, 2, 0, 3).reshape(1, s.key_heads, shared * count, s.head)
        context = functional.scaled_dot_product_attention(queries, self.keys[None], self.values[None], attn_mask=mask)
        context = context.view(s.key_heads, shared, count, s.head).permute(2, 0, 1, 3).reshape(count, -1)
        return functional.linear(context, self.o, self.o_bias)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor,
                mask: torch.Tensor | None) -> torch.Tensor:  # fmt: skip
        normed = self.norm(x, self.input_norm)
        if self.attention_conv is not None:
            dynamic = self.attention_conv.kernels(normed)
            normed = self.attention_conv(normed, dynamic, 0)
        attended = self.attend(normed, cos, sin, rows, mask)
        if self.attention_conv is not None:
            attended = self.attention_conv(attended, dynamic, 1)
        x = x + attended
        normed = self.norm(x, self.post_norm)
        if self.mlp_conv is not None:
            dynamic = self.mlp_conv.kernels(normed)
            normed = self.mlp_conv(normed, dynamic, 0)
        gated = functional.silu(functional.linear(normed, self.gate)) * functional.linear(normed, self.up)
        down = functional.linear(gated, self.down)
        if self.mlp_conv is not None:
            down = self.mlp_conv(down, dynamic, 1)
        return x + down


class PlainBlock(torch.nn.Module):
    """forward(noise [B, H]) over a context of rows at positions[:-B] that `ingest` has put into the cache."""

    def __init__(self, directory: Path, positions: torch.Tensor, dtype: torch.dtype, device: str):
        super().__init__()
        shape = self.shape = Shape(directory)
        weights = load(directory / "model.safetensors", dtype, device)
        self.context = positions.shape[0] - shape.block
        self.register_buffer("fc", weights["fc.weight"])
        self.register_buffer("hidden_norm", weights["hidden_norm.weight"])
        self.register_buffer("final_norm", weights["norm.weight"])
        self.layers = torch.nn.ModuleList(
            Layer(weights, layer, shape, positions.shape[0], self.final_norm) for layer in range(shape.layers)
        )
        frequencies = shape.theta ** (-torch.arange(0, shape.head, 2, dtype=torch.float64) / shape.head)
        angles = (positions.float()[:, None] * frequencies.float()).double()  # a float32 product, as upstream has it
        angles = torch.cat((angles, angles), dim=-1)[:, None].to(device)
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))
        self.register_buffer("rows", torch.arange(positions.shape[0], device=device))
        self.masks = [mask_of(positions, shape, layer, dtype, device) for layer in range(shape.layers)]

    def ingest(self, features: torch.Tensor) -> None:
        for layer in self.layers:
            layer.store(features, self.cos[: self.context], self.sin[: self.context], self.rows[: self.context])

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        x = noise
        for layer, mask in zip(self.layers, self.masks):
            x = layer(x, self.cos[self.context :], self.sin[self.context :], self.rows[self.context :], mask)
        return functional.rms_norm(x, self.final_norm.shape, self.final_norm, self.shape.eps)

    def features(self, taps: torch.Tensor) -> torch.Tensor:
        projected = functional.linear(taps, self.fc)
        return functional.rms_norm(projected, self.hidden_norm.shape, self.hidden_norm, self.shape.eps)


def load(path: Path, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    try:
        with safe_open(str(path), "pt", device=device) as file:
            names = [name for name in file.keys() if name.startswith(("layers.", "fc.", "hidden_norm.", "norm."))]
            return {name: file.get_tensor(name).to(dtype) for name in names}
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error}). Expected the weights of the checkpoint.") from error


def mask_of(positions: torch.Tensor, shape: Shape, layer: int, dtype: torch.dtype,
            device: str) -> torch.Tensor | None:  # fmt: skip
    """What to add to the scores [1, 1, heads a key head * B, C + B]; None when every key is visible."""
    distance = positions[-shape.block :, None] - positions[None]
    visible = torch.ones_like(distance, dtype=torch.bool)
    if shape.window[layer]:
        visible &= distance.abs() < shape.window[layer]
    if shape.causal[layer]:
        visible &= distance >= 0
    if visible.all():
        return None
    mask = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, float("-inf"))
    return mask.repeat(shape.heads // shape.key_heads, 1)[None, None].to(device)
