"""Which upstream class runs a family, and how its config must be laid out for that class.

z-lab's `dflash` runs DFlash and DFlash2, SpecForge runs DSpark. SpecForge reads the drafter's keys in `dflash_config`
only, where checkpoints of the DeepSpec style have them at the top level. Its model takes masks from its caller; they are
made by SpecForge's own function. What a config may say at all is config_rules.py.
"""

from __future__ import annotations

import dflash.model as upstream
import torch

import packages
from config_rules import SLIDING, Facts
from refusal import Refused

# What SpecForge looks for in dflash_config and nowhere else.
SPECFORGE_KEYS = (
    "target_layer_ids", "mask_token_id", "projector_type", "attention_mode", "markov_rank", "markov_head_type",
    "enable_confidence_head", "confidence_head_alpha", "confidence_head_with_markov", "shift_label",
)  # fmt: skip


def upstream_class(family: str) -> type:
    if family == "dspark":
        return packages.specforge_dspark().DSparkDraftModel
    return {"dflash": upstream.DFlashDraftModel, "dflash2": upstream.DFlash2DraftModel}[family]


def lay_out_for_specforge(settings: dict, adapters: list[str]) -> None:
    """Brings every key to the one place where SpecForge reads it."""
    nested, moved = settings["dflash_config"], []
    for entries in (nested, settings):
        if "use_confidence_head" in entries:
            settings.setdefault("enable_confidence_head", entries["use_confidence_head"])
    for name in SPECFORGE_KEYS:
        if name in settings and name not in nested:
            nested[name] = settings[name]
            moved.append(name)
    if "block_size" not in settings:
        settings["block_size"] = nested["block_size"]
        moved.append("block_size (to the top level)")
    if moved:
        adapters.append(f"keys were copied to where SpecForge reads them, in dflash_config: {', '.join(moved)}")
    if "attention_mode" not in nested and settings["num_key_value_heads"] == settings["num_attention_heads"]:
        nested["attention_mode"] = "mha"
        adapters.append("attention_mode mha was supplied, because SpecForge wants equal head counts said so")


def layer_causality(facts: Facts, model) -> list[bool]:
    """Per layer, whether it runs causal. z-lab's modules hold it; SpecForge's masks are proved to be these."""
    if facts.family != "dspark":
        return [bool(layer.self_attn.is_causal) for layer in model.layers]
    return [kind == SLIDING for kind in model.layer_types]


def specforge_masks(facts: Facts, model, rows: int, keys: int) -> dict[str, torch.Tensor | None]:
    """A mask for each layer type, made by SpecForge's own function; None where everything is visible.

    Refused where it is not the mask that the geometry record describes, which z-lab's function makes.
    """
    causality = dict(zip(model.layer_types, facts.is_causal, strict=True))
    masks = {}
    for kind, causal in causality.items():
        window = model.sliding_window if kind == SLIDING else None
        mask = packages.specforge_masks().create_dflash_sdpa_mask(
            torch.tensor([[keys - rows]]), torch.ones(1, 1, dtype=torch.bool), keys - rows, rows, "cpu", window
        )
        q, k = torch.empty(1, 1, rows, 1, dtype=torch.float64), torch.empty(1, 1, keys, 1, dtype=torch.float64)
        described = upstream._attention_mask(q, k, is_causal=causal, sliding_window=window)
        if not torch.equal(mask, described):
            apart = int((mask != described).sum())
            raise Refused(
                f"{kind}: SpecForge's own mask for {rows} rows and {keys} keys (window {window}) is not that of a layer "
                f"with is_causal {causal}; {apart} of {mask.numel()} elements differ. No reference computes such a layer."
            )
        masks[kind] = None if bool(mask.all()) and window is None else mask
    return masks


def confidence_bias(state: dict, adapters: list[str]) -> None:
    """SpecForge's confidence head always has a bias; checkpoints may come without, which means zero."""
    for name in [name for name in state if name.endswith("confidence_head.proj.weight")]:
        bias = name.removesuffix("weight") + "bias"
        if bias not in state:
            state[bias] = torch.zeros(1, dtype=state[name].dtype)
            note = "confidence_head.proj.bias is absent from the checkpoint; zero was supplied"
            if note not in adapters:
                adapters.append(note)
