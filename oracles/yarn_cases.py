"""The YaRN configs of vectors.h5, as whole config.json objects that a drafter's own parser can read."""

from __future__ import annotations

BASE = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "rms_norm_eps": 1e-6,
    "num_target_layers": 12,
    "block_size": 5,
    "dflash_config": {"mask_token_id": 1000, "target_layer_ids": [1, 4, 9]},
}


def old(head_dim: int, theta: float, factor, original, *, longest: int = 262144, **more) -> dict:
    """transformers 4 keys. `original` None leaves the key out; entries of `more` go into rope_scaling."""
    scaling = {"rope_type": "yarn", "factor": factor, **more}
    if original is not None:
        scaling["original_max_position_embeddings"] = original
    return {**BASE, "head_dim": head_dim, "max_position_embeddings": longest, "rope_theta": theta,
            "rope_scaling": scaling}  # fmt: skip


def new(head_dim: int, theta: float, factor, original, *, longest: int = 262144, **more) -> dict:
    """transformers 5 keys."""
    settings = old(head_dim, theta, factor, original, longest=longest, **more)
    scaling = settings.pop("rope_scaling")
    return {**settings, "rope_parameters": {"rope_theta": settings.pop("rope_theta"), **scaling}}


CASES = {
    "dim128-factor32": new(128, 10000000, 32.0, 8192, beta_fast=32.0, beta_slow=1.0),
    "dim64-factor16": old(64, 10000.0, 16.0, 4096, longest=65536, beta_fast=32.0, beta_slow=1.0),
    "dim64-small-factor": new(64, 10000000, 1.5625, 262144),
    "explicit-attention-factor": new(128, 1000000, 4.0, 32768, attention_factor=1.5),
    "attention-factor-before-mscale": old(64, 1000000, 8.0, 4096, attention_factor=0.75, mscale=1.0, mscale_all_dim=0.5),
    "mscale-pair": old(64, 1000000, 16.0, 4096, mscale=1.0, mscale_all_dim=0.5),
    "mscale-pair-equal": new(64, 10000, 40.0, 4096, mscale=1.0, mscale_all_dim=1.0),
    "mscale-without-all-dim": new(64, 10000, 40.0, 4096, mscale=0.707),
    "mscale-zero": new(64, 10000, 40.0, 4096, mscale=0.0, mscale_all_dim=1.0),
    "truncate-off": new(128, 1000000, 16.0, 8192, truncate=False),
    "betas": old(128, 5000000, 8.0, 16384, beta_fast=20.0, beta_slow=2.0),
    "betas-null-and-zero": new(128, 5000000, 8.0, 16384, beta_fast=0, beta_slow=None),
    "range-collapses-to-zero": new(64, 10000, 4.0, 6),
    "range-of-equal-betas": new(64, 1000000, 4.0, 4096, beta_fast=4.0, beta_slow=4.0, truncate=False),
    "range-clamped-below": new(64, 10000, 4.0, 64),
    "dim8": new(8, 10000, 8.0, 512),
    "dim4": old(4, 10000.0, 8.0, 128),
    "dim80": new(80, 500000, 8.0, 8192),
    "factor-null": new(128, 1000000, None, 4096, longest=65536),
    "original-absent": old(128, 1000000, 4.0, None, longest=32768),
    "factor-one": new(64, 1000000, 1.0, 4096),
    "half-rotated": {**old(24, 1000000, 8.0, 4096), "partial_rotary_factor": 0.5},
}
