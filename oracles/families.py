"""Which upstream class runs a family, and how its config must be laid out for that class.

z-lab's `dflash` runs DFlash and DFlash2, SpecForge runs DSpark. SpecForge reads the drafter's keys in `dflash_config`
only, where checkpoints of the DeepSpec style have them at the top level, and it leaves masks to its caller.
"""

from __future__ import annotations

from pathlib import Path

import dflash.model as upstream
import torch

import packages
from refusal import Refused

# What SpecForge looks for in dflash_config and nowhere else.
SPECFORGE_KEYS = (
    "target_layer_ids", "mask_token_id", "projector_type", "attention_mode", "markov_rank", "markov_head_type",
    "enable_confidence_head", "confidence_head_alpha", "confidence_head_with_markov", "shift_label",
)  # fmt: skip
# Public spellings of one fact: row k predicts the token after its own position.
SHIFT_KEYS = ("shift_label", "sample_from_anchor", "query_zero_predicts_next")


def select_family(raw: dict, where: Path) -> tuple[str, type]:
    """The family and the upstream class; architectures and projector_type decide, never the tensors."""
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise Refused(f"{where}: architectures is {names!r}, expected an array of exactly one name.")
    kind = raw.get("dflash_config", {}).get("projector_type", raw.get("projector_type"))
    if kind not in (None, "", "dflash", "dflash2", "dspark"):
        raise Refused(f"{where}: projector_type {kind!r} is not a model that an installed reference implements.")
    if "DSpark" in names[0] or (names[0] == "DFlashDraftModel" and kind == "dspark"):
        if kind not in (None, "", "dspark"):
            raise Refused(f"{where}: architectures is {names!r} but projector_type is {kind!r}. Correct one of them.")
        return "dspark", packages.specforge_dspark().DSparkDraftModel
    if names[0] == "DFlashDraftModel" and kind != "dflash2":
        return "dflash", upstream.DFlashDraftModel
    if names[0] == "DFlash2DraftModel" and kind in (None, "", "dflash2"):
        return "dflash2", upstream.DFlash2DraftModel
    raise Refused(
        f"{where}: architectures is {names!r} with projector_type {kind!r}, expected DFlashDraftModel, "
        "DFlash2DraftModel or a name with DSpark in it, and a projector_type that agrees. "
        "Other families need a reference of their own."
    )


def lay_out_for_specforge(settings: dict, path: Path, adapters: list[str]) -> None:
    """Brings every key to the one place where SpecForge reads it; a key in both places must say the same."""
    nested = settings.setdefault("dflash_config", {})
    moved = []
    if "use_confidence_head" in settings and "enable_confidence_head" not in settings:
        settings["enable_confidence_head"] = settings["use_confidence_head"]
    for name in SPECFORGE_KEYS:
        if settings.get(name) is None:
            continue
        if nested.get(name) is None:
            nested[name] = settings[name]
            moved.append(name)
        elif nested[name] != settings[name]:
            raise Refused(f"{path}: {name} is {settings[name]!r} at the top level and {nested[name]!r} in dflash_config.")
    if settings.get("block_size") is None:
        settings["block_size"] = nested.get("block_size")
        moved.append("block_size (to the top level)")
    if moved:
        adapters.append(f"keys were copied to where SpecForge reads them, in dflash_config: {', '.join(moved)}")
    if nested.get("attention_mode") is None and settings["num_key_value_heads"] == settings["num_attention_heads"]:
        nested["attention_mode"] = "mha"
        adapters.append("attention_mode mha was supplied, because SpecForge wants equal head counts said so")
    for name in SHIFT_KEYS:
        if nested.get(name, settings.get(name)) is False:
            raise Refused(f"{path}: {name} is false, but a DSpark drafter is harvested shifted. Correct the key.")
    for name, neutral in (("output_multiplier", 1.0), ("final_logit_softcapping", 0.0)):
        if float(nested.get(name, settings.get(name)) or neutral) != neutral:
            raise Refused(f"{path}: {name} is given, and SpecForge's DSpark applies none. No reference computes it.")


def layer_causality(family: str, raw: dict, model) -> list[bool]:
    """Per layer, whether it runs causal. z-lab's modules hold it; SpecForge takes it from the mask that we give."""
    if family != "dspark":
        return [bool(layer.self_attn.is_causal) for layer in model.layers]
    said = raw.get("dflash_config", {}).get("is_causal", raw.get("is_causal"))
    return [kind == "sliding_attention" if said is None else bool(said) for kind in model.layer_types]


def specforge_masks(raw: dict, model, rows: int, keys: int) -> dict[str, torch.Tensor | None]:
    """A mask for each layer type, made by z-lab's own function; None where everything is visible."""
    causality = dict(zip(model.layer_types, layer_causality("dspark", raw, model), strict=True))
    masks = {}
    for kind, causal in causality.items():
        window = model.sliding_window if kind == "sliding_attention" else None
        masks[kind] = None
        if causal or window is not None:
            q, k = torch.empty(1, 1, rows, 1, dtype=torch.float64), torch.empty(1, 1, keys, 1, dtype=torch.float64)
            masks[kind] = upstream._attention_mask(q, k, is_causal=causal, sliding_window=window)
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
