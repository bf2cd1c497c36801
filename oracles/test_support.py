"""Small checkpoints for the oracle self-tests, and each stage computed again from the stages before it.

The second part is written from the description of the model, in plain float64 numpy, one stage at a time; it shares no
code with the reference, so a stage that was hooked in the wrong place or rounded on its way does not agree with it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

LAYERS = 3
TAPS = [1, 4, 9]


def make_checkpoint(
    directory: Path, *, kernel: int = 0, suffix: str = "", dtype=torch.bfloat16, markov: str = "", confidence: str = "",
    lm_head: bool = False, embedding: bool = False, wrapper: str = "", **changes,
) -> Path:  # fmt: skip
    """A random drafter; kernel > 0 makes it DFlash2, markov (a kind of head) makes it DSpark, with a confidence head
    "plain", "bias" or "markov". lm_head adds an output head, embedding the
    target's table. A change to None removes the key from config.json."""
    config = {
        "architectures": ["DFlash2DraftModel" if kernel else "DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 112,
        "num_hidden_layers": LAYERS,
        "vocab_size": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "max_position_embeddings": 40960,
        "num_target_layers": 12,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
        "block_size": 5,
        "dflash_config": {"mask_token_id": 200, "target_layer_ids": TAPS},
    }
    if kernel:
        config["dflash_config"] |= {
            "conv_kernel_size": kernel, "conv_group_size": 16, "selector_rank": 8, "selector_top_k": 4,
        }  # fmt: skip
    if markov:
        config["architectures"] = ["DSparkDraftModel"]
        config["dflash_config"] |= {
            "projector_type": "dspark", "markov_rank": 8, "markov_head_type": markov,
            "enable_confidence_head": bool(confidence), "confidence_head_with_markov": confidence == "markov",
        }  # fmt: skip
    config |= changes
    config = {key: value for key, value in config.items() if value is not None}
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim", hidden // config["num_attention_heads"])
    random = torch.Generator().manual_seed(len(directory.name))
    tensors = {}

    def linear(name, out, width, gain=1.0):
        tensors[name] = torch.randn(out, width, generator=random) * gain / width**0.5

    def norm(name, width):
        tensors[name] = 0.3 + 1.5 * torch.rand(width, generator=random)

    linear("fc.weight", hidden, len(TAPS) * hidden)
    norm("hidden_norm.weight", hidden)
    norm("norm.weight", hidden)
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        norm(prefix + "input_layernorm.weight", hidden)
        norm(prefix + "post_attention_layernorm.weight", hidden)
        queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
        for kind, out, width in (
            ("q", queries, hidden),
            ("k", keys, hidden),
            ("v", keys, hidden),
            ("o", hidden, queries),
        ):
            linear(f"{prefix}self_attn.{kind}_proj.weight", out, width)
            if config["attention_bias"]:
                tensors[f"{prefix}self_attn.{kind}_proj.bias"] = 0.1 * torch.randn(out, generator=random)
        norm(prefix + "self_attn.q_norm.weight", head)
        norm(prefix + "self_attn.k_norm.weight", head)
        linear(prefix + "mlp.gate_proj.weight", inner, hidden)
        linear(prefix + "mlp.up_proj.weight", inner, hidden)
        linear(prefix + "mlp.down_proj.weight", hidden, inner)
        for side in ("attention", "mlp") if kernel else ():
            tensors[f"{prefix}{side}_conv.base_kernel"] = 0.4 * torch.randn(2, kernel, hidden, generator=random)
            linear(f"{prefix}{side}_conv.kernel_projection.weight", 2 * kernel * hidden // 16, hidden, 0.2)
    if kernel:
        linear("candidate_selector.hidden_projection.weight", 8, hidden)
        for side in ("predecessor", "successor"):
            tensors[f"candidate_selector.{side}_codebook{suffix}"] = torch.randn(256, 8, generator=random)
    if markov:
        heads = f"{wrapper}markov_head."
        tensors[f"{heads}markov_w1.weight"] = torch.randn(256, 8, generator=random)
        linear(f"{heads}markov_w2.weight", 256, 8, 2.0)
        if markov != "vanilla":
            name, out, width = ("gate_proj", 8, hidden + 8) if markov == "gated" else ("joint_proj", 24, hidden + 16)
            linear(f"{heads}{name}.weight", out, width)
            tensors[f"{heads}{name}.bias"] = 0.3 * torch.randn(out, generator=random)
    if confidence:
        linear(f"{wrapper}confidence_head.proj.weight", 1, hidden + (8 if confidence == "markov" else 0), 1.5)
        if confidence != "plain":
            tensors[f"{wrapper}confidence_head.proj.bias"] = torch.randn(1, generator=random)
    if lm_head:
        linear("lm_head.weight", 256, hidden, 2.5)
    if embedding:
        linear("embed_tokens.weight", 256, hidden, 2.0)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, directory / "model.safetensors")
    return directory


def rmsnorm(x, weight, eps):
    return weight * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rotate(x, cos, sin):
    """x [rows, heads, hd]; cos, sin [rows, rotary_dim / 2]."""
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def attend(q, k, v, q_positions, k_positions, causal, window):
    rows, heads, head = q.shape
    groups = heads // k.shape[1]
    out = np.empty_like(q)
    distance = q_positions[:, None] - k_positions[None, :]
    visible = np.ones_like(distance, dtype=bool)
    if causal:
        visible &= distance >= 0
    if window:
        visible &= distance < window
        visible &= -distance < window
    for h in range(heads):
        scores = q[:, h] @ k[:, h // groups].T / np.sqrt(head)
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = weights / weights.sum(axis=1, keepdims=True) @ v[:, h // groups]
    return out.reshape(rows, heads * head)


def convolve(x, base, dyn, group):
    out = np.zeros_like(x)
    for tap in range(base.shape[0]):
        shifted = np.vstack([np.zeros((tap, x.shape[1])), x[: x.shape[0] - tap]])
        out += (base[tap] + np.repeat(dyn[:, tap], group, axis=1)) * shifted
    return out


def recompute(geometry: dict, weights: dict, inputs: dict, stages: dict) -> dict:
    """Every stage of the float64 run from the recorded stages that it follows."""
    g, w, s, out = geometry, weights, stages, {}
    eps, heads, kv_heads, head = (
        g[key] for key in ("rms_norm_eps", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    positions, block = inputs["positions"], g["block_size"]
    out["ctx.fc"] = inputs["target_hidden"] @ w["fc.weight"].T
    out["ctx.features"] = rmsnorm(s["ctx.fc"], w["hidden_norm.weight"], eps)
    table = s["table"].astype(np.float32)
    angle = (positions.astype(np.float32)[:, None] * table[None, :]).astype(np.float64)
    out["rope.cos"] = np.cos(angle) * g["rope"]["attention_scaling"]
    out["rope.sin"] = np.sin(angle) * g["rope"]["attention_scaling"]
    x = inputs["noise_embedding"]
    if "block_ids" in inputs:
        out["input"] = w["embed_tokens.weight"][inputs["block_ids"]] * g["input_embedding_scale"]
        x = s["input"]
    for i in range(g["num_hidden_layers"]):
        p, a = f"layers.{i}.", f"layers.{i}.self_attn."

        def project(kind, rows):
            return rows @ w[f"{a}{kind}_proj.weight"].T + w.get(f"{a}{kind}_proj.bias", 0.0)

        def conv(side, name, rows, half, store):
            group, kernel = g["conv_group_size"], w[f"{p}{name}_conv.base_kernel"]
            dyn = s[f"{p}{side}.conv_dyn"]
            out[f"{p}{side}.{store}"] = convolve(rows, kernel[half], dyn[:, half], group)
            return s[f"{p}{side}.{store}"]

        def dynamic(side, name, rows):
            flat = rows @ w[f"{p}{name}_conv.kernel_projection.weight"].T
            out[f"{p}{side}.conv_dyn"] = flat.reshape(s[f"{p}{side}.conv_dyn"].shape)

        out[p + "attn.norm"] = rmsnorm(x, w[p + "input_layernorm.weight"], eps)
        rows = s[p + "attn.norm"]
        if g["family"] == "dflash2":
            dynamic("attn", "attention", rows)
            rows = conv("attn", "attention", rows, 0, "conv_in")
        both = np.vstack([s["ctx.features"], rows])
        out[p + "attn.q_proj"] = project("q", rows)
        out[p + "attn.k_proj"] = project("k", both)
        out[p + "attn.v"] = project("v", both)
        q, k = s[p + "attn.q_proj"].reshape(-1, heads, head), s[p + "attn.k_proj"].reshape(-1, kv_heads, head)
        out[p + "attn.q_norm"] = rmsnorm(q, w[a + "q_norm.weight"], eps)
        out[p + "attn.k_norm"] = rmsnorm(k, w[a + "k_norm.weight"], eps)
        out[p + "attn.q_rope"] = rotate(s[p + "attn.q_norm"], s["rope.cos"][-block:], s["rope.sin"][-block:])
        out[p + "attn.k_rope"] = rotate(s[p + "attn.k_norm"], s["rope.cos"], s["rope.sin"])
        out[p + "attn.context"] = attend(
            s[p + "attn.q_rope"], s[p + "attn.k_rope"], s[p + "attn.v"].reshape(-1, kv_heads, head), positions[-block:],
            positions, g["is_causal"][i], g["sliding_window"][i])  # fmt: skip
        out[p + "attn.o_proj"] = project("o", s[p + "attn.context"])
        rows = s[p + "attn.o_proj"]
        if g["family"] == "dflash2":
            rows = conv("attn", "attention", rows, 1, "conv_out")
        out[p + "attn.residual"] = x + rows
        x = s[p + "attn.residual"]
        out[p + "mlp.norm"] = rmsnorm(x, w[p + "post_attention_layernorm.weight"], eps)
        rows = s[p + "mlp.norm"]
        if g["family"] == "dflash2":
            dynamic("mlp", "mlp", rows)
            rows = conv("mlp", "mlp", rows, 0, "conv_in")
        out[p + "mlp.gate"] = rows @ w[p + "mlp.gate_proj.weight"].T
        out[p + "mlp.up"] = rows @ w[p + "mlp.up_proj.weight"].T
        gate = s[p + "mlp.gate"]
        out[p + "mlp.act"] = gate / (1.0 + np.exp(-gate)) * s[p + "mlp.up"]
        out[p + "mlp.down"] = s[p + "mlp.act"] @ w[p + "mlp.down_proj.weight"].T
        rows = s[p + "mlp.down"]
        if g["family"] == "dflash2":
            rows = conv("mlp", "mlp", rows, 1, "conv_out")
        out[p + "out"] = x + rows
        x = s[p + "out"]
    out["final"] = rmsnorm(x, w["norm.weight"], eps)
    context = len(positions) - block
    layers = range(g["num_hidden_layers"])
    out["kv.k"] = np.stack([s[f"layers.{i}.attn.k_rope"][:context] for i in layers])
    out["kv.v"] = np.stack([s[f"layers.{i}.attn.v"][:context].reshape(context, kv_heads, head) for i in layers])
    return out
