"""A second reference's word on the same checkpoint and inputs.

DFlash2 also exists in NeMo AutoModel, and DSpark's backbone is DFlash's, which z-lab's package runs. Each is built from
the same tensors, runs under the same arithmetic, and is compared stage by stage; what it says is recorded as the
distance from the first reference. Two float64 runs that part by more than rounding are a refusal.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from unittest import mock

import dflash.model as upstream
import torch

import packages
from capture import Capture
from head import Head
from proposals import observed_select
from refusal import Refused
from rope import make_rotary
from runner import Runner
from spacing import has_gaps

LIMIT = 1e-10  # of two float64 runs, relative to the largest value of the stage
RUNS = (("float64", torch.float64), ("float32", torch.float32))
HEADS = ("markov_head.", "confidence_head.", "logit_head.")


def distance(value: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    gap, scale = (value.double() - other.double()), other.double()
    rel_l2 = gap.norm().item() / max(scale.norm().item(), 1e-300)
    max_rel = gap.abs().max().item() / max(scale.abs().max().item(), 1e-300)
    return {"rel_l2": float(f"{rel_l2:.3e}"), "max_rel": float(f"{max_rel:.3e}")}


def nemo_config(checkpoint):
    """NeMo reads the drafter's keys in dflash_config only, and knows no projector_type for DFlash2."""
    settings = copy.deepcopy(checkpoint.settings)
    nested = settings.setdefault("dflash_config", {})
    for name in ("block_size", "mask_token_id", "target_layer_ids", "conv_kernel_size", "conv_group_size",
                 "selector_rank", "selector_top_k", "output_multiplier", "final_logit_softcapping"):  # fmt: skip
        if nested.get(name) is None and settings.get(name) is not None:
            nested[name] = settings[name]
    for name in ("projector_type", "final_logit_softcapping"):
        if not nested.get(name) or name == "projector_type":  # NeMo refuses a zero that means none
            nested.pop(name, None)
    return settings


def build(checkpoint, tensors, dtype: torch.dtype, spaced: bool) -> tuple[torch.nn.Module, object]:
    """The second model and the module that it comes from."""
    if checkpoint.family == "dflash2":
        code = packages.nemo_dflash2()
        kind, settings = code.Qwen3DFlash2DraftModel, nemo_config(checkpoint)
        state = {name.removesuffix(".weight") if "_codebook" in name else name: tensor
                 for name, tensor in tensors.load(dtype).items()}  # fmt: skip
    else:
        code = upstream
        kind, settings = upstream.DFlashDraftModel, checkpoint.settings
        state = tensors.load(dtype, lambda name: not name.startswith(HEADS))
    config = kind.config_class.from_dict(copy.deepcopy(settings))
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = kind(config)
    model.rotary_emb = make_rotary(model.config)
    model.load_state_dict(state, strict=True, assign=True)
    if checkpoint.family == "dflash2":
        give_masks(model, checkpoint, spaced)
    return model.eval().requires_grad_(False), code


def give_masks(model, checkpoint, spaced: bool) -> None:
    """NeMo's layers never run causal by themselves, and count rows where positions have gaps (spaced); those that must
    get the mask that z-lab's would make."""
    said = checkpoint.value("is_causal")
    for layer, kind in zip(model.layers, model.config.layer_types, strict=True):
        sliding = kind == "sliding_attention"
        causal = sliding if said is None else said
        if not causal and not (sliding and spaced):
            continue

        def supply(module, args, kwargs, causal=causal):
            rows = kwargs["hidden_states"].shape[1]
            q = torch.empty(1, 1, rows, 1, dtype=torch.float64)
            k = torch.empty(1, 1, rows + kwargs["target_hidden"].shape[1], 1, dtype=torch.float64)
            mask = upstream._attention_mask(q, k, is_causal=causal, sliding_window=module.sliding_window)
            return args, {**kwargs, "attention_mask": mask}

        layer.self_attn.register_forward_pre_hook(supply, with_kwargs=True)


def stages_of(model, checkpoint, tensors, inputs, dtype, rotary_dim, anchor) -> dict[str, torch.Tensor]:
    runner = Runner(model, inputs, dtype, rotary_dim)
    with runner.arithmetic(), Capture(model, rotary_dim).attached() as capture:
        final = runner.forward()
    stages = capture.stages
    if checkpoint.family != "dflash2" or anchor is None:
        return stages
    head = Head(tensors, model.config.vocab_size, final.shape[-1], dtype)
    with runner.arithmetic(), observed_walk() as scores:
        logits = model.compute_logits(final[:, 1:], head)
        path, _, _ = model.candidate_selector.walk(final[:, 1:], logits, torch.tensor([anchor]), 0.0)
    return {**stages, "logits": logits[0], "select.scores": torch.cat(scores), "select.path": path[0].to(torch.int32)}


@contextmanager
def observed_walk():
    """NeMo's walk calls the method; it is led to the function that the observer of upstream's walk wraps."""

    def method(tensor, *args, **kwargs):
        return torch.argmax(tensor, *args, **kwargs)

    with observed_select() as scores, mock.patch.object(torch.Tensor, "argmax", method):
        yield scores


def opinion(checkpoint, tensors, inputs, rotary_dim: int, anchor: int | None, runs: dict, log) -> dict | None:
    """The record of the second reference, or None where there is none for the family."""
    if checkpoint.family == "dflash":
        return None
    record = {}
    for name, dtype in RUNS:
        model, code = build(checkpoint, tensors, dtype, has_gaps(inputs.positions))
        package = code.__name__.split(".")[0].replace("nemo_automodel", "nemo-automodel")
        record = record or {"package": package, "version": packages.version(package), **packages.source_record(code)}
        theirs = stages_of(model, checkpoint, tensors, inputs, dtype, rotary_dim, anchor)
        del model
        missing = sorted(set(theirs) - set(runs[name]))
        if missing:
            raise RuntimeError(f"{package} gives stages that the first reference does not: {', '.join(missing)}")
        apart = {stage: distance(theirs[stage], runs[name][stage]) for stage in runs[name] if stage in theirs}
        worst = max(apart, key=lambda stage: apart[stage]["max_rel"])
        if name == "float64" and apart[worst]["max_rel"] > LIMIT:
            raise Refused(
                f"{package} and the first reference differ at {worst} by {apart[worst]['max_rel']:.3g} of the largest "
                f"value in float64, more than {LIMIT:g}. They do not compute the same model; find out who is right."
            )
        kept = [stage for stage in apart if stage.endswith(".out") or not stage.startswith(("layers.", "rope."))]
        record[name] = {"worst": {"stage": worst, **apart[worst]}, "stages": {stage: apart[stage] for stage in kept}}
        shown = ", ".join(f"{stage} {apart[stage]['rel_l2']:.1e}" for stage in kept if stage[0] in "fs" or stage == "logits")
        log(f"  {package} {record['version']} in {name}: {len(apart)} stages, worst {apart[worst]['max_rel']:.1e} at "
            f"{worst}; relative L2: {shown}")  # fmt: skip
    return record
