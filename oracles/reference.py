"""Builds the upstream drafter from a checkpoint directory and states what it resolved.

The upstream classes are imported and run, never copied. This file checks that config.json reached them as written,
loads the weights strictly, lists every place where upstream had to be adapted, and derives the geometry record from
the modules themselves. Observing the stages is capture.py; float64 is lift.py.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch

import config_rules
import config_text
from config_keys import ROWS
from config_rules import Facts
from families import confidence_bias, layer_causality, lay_out_for_specforge, upstream_class
from files import open_regular
from refusal import Refused
from rope import check_rope, lay_out_rope, make_rotary, rope_geometry
from weights import Tensors

# What Qwen3Config and the upstream modules read at the top level only.
TOP_KEYS = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "num_hidden_layers",
    "vocab_size", "num_target_layers", "max_position_embeddings", "rms_norm_eps", "hidden_act", "attention_bias",
    "layer_types", "sliding_window", "use_sliding_window", "max_window_layers", "is_causal", "rope_theta",
    "partial_rotary_factor",
)  # fmt: skip


@dataclass
class Checkpoint:
    """What a checkpoint directory says, before any module exists."""

    directory: Path
    raw: dict  # config.json as parsed
    config_sha256: str
    facts: Facts  # what the rules of configs resolved
    model_class: type
    config: object  # the transformers config
    settings: dict  # what the config was made of: raw with the adapters' changes
    adapters: list[str] = field(default_factory=list)

    @property
    def family(self) -> str:
        return self.facts.family

    def value(self, name, default=None):
        """A key of dflash_config or of the top level, as upstream looks it up."""
        return self.settings["dflash_config"].get(name, self.settings.get(name, default))

    @property
    def embedding_scale(self) -> float:
        return float(self.value("input_embedding_scale") or 1.0)


def read_json(path: Path) -> tuple[dict, str]:
    """A parsed object and the digest of its bytes."""
    try:
        with open_regular(path, "a JSON file; full-size checkpoints are made with `dflash-parity synth`") as stream:
            data = stream.read()
    except OSError as error:
        raise Refused(
            f"{path}: cannot be read ({error.strerror}). Check the path; full-size checkpoints are made with "
            "`dflash-parity synth`."
        ) from error
    return config_text.parse(data, path), hashlib.sha256(data).hexdigest()


def read_keys(entries: dict) -> dict:
    """The entries that somebody reads; a null is absent, and bookkeeping is kept from upstream's checks of types."""
    read = {row.name for row in ROWS if row.kind == "READ"}
    return {name: value for name, value in entries.items() if value is not None and name in read}


def lay_out(raw: dict, facts: Facts, adapters: list[str]) -> dict:
    """The settings for the upstream config class: the keys that are read, where upstream reads them."""
    settings = copy.deepcopy(read_keys(raw))
    nested = settings["dflash_config"] = read_keys(settings.get("dflash_config", {}))
    moved = [name for name in TOP_KEYS if name in nested and name not in settings]
    settings |= {name: nested[name] for name in moved}
    if moved:
        adapters.append(f"keys were copied from dflash_config to the top level, where upstream reads them: {', '.join(moved)}")
    for entries in (settings, nested):
        entries |= {name: value for name, value in facts.integers.items() if name in entries}
    settings["rms_norm_eps"] = float(settings["rms_norm_eps"])
    if "layer_types" not in settings and facts.sliding_window:
        settings |= {
            "layer_types": facts.layer_types,
            "sliding_window": facts.sliding_window,
            "use_sliding_window": True,
        }
        adapters.append("use_swa without layer_types: every layer slides, and upstream was told so in its own keys")
    return settings


def open_checkpoint(directory: Path) -> Checkpoint:
    path = directory / "config.json"
    raw, digest = read_json(path)
    facts = config_rules.check(raw, path)
    model_class = upstream_class(facts.family)
    adapters: list[str] = []
    settings = lay_out(raw, facts, adapters)
    if facts.family == "dspark":
        lay_out_for_specforge(settings, adapters)
    nested = settings["dflash_config"]
    if "num_target_layers" not in settings:
        # upstream computes the default tap ids even when they are given, and that needs this key
        settings["num_target_layers"] = max(nested.get("target_layer_ids", settings.get("target_layer_ids"))) + 4
        adapters.append(
            "num_target_layers is absent from config.json; a value was supplied because upstream reads it "
            "for default tap ids that it then discards"
        )
    if "head_dim" not in settings:
        settings["head_dim"] = facts.sizes["head_dim"]
        adapters.append(
            "head_dim is absent from config.json; hidden_size / num_attention_heads was supplied, because "
            "Qwen3Config would take 128"
        )
    lay_out_rope(settings, facts.rope, adapters)

    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        config = model_class.config_class.from_dict(settings)
    except Exception as error:  # transformers raises many kinds
        raise Refused(f"{path}: the upstream config class refuses it: {type(error).__name__}: {error}") from error
    checkpoint = Checkpoint(directory, raw, digest, facts, model_class, config, settings, adapters)
    check_config(checkpoint, path)
    return checkpoint


def check_config(checkpoint: Checkpoint, path: Path) -> None:
    """Refuses when a value of config.json did not reach the upstream config object as written."""
    names = (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "num_hidden_layers",
        "rms_norm_eps",
        "attention_bias",
        "layer_types",
        "is_causal",
        "vocab_size",
        "block_size",
        "mask_token_id",
        "target_layer_ids",
    )
    for name, written in checkpoint.settings["dflash_config"].items():
        if checkpoint.config.dflash_config.get(name) != written:
            raise Refused(
                f"{path}: {name} is {written!r} in dflash_config but upstream holds "
                f"{checkpoint.config.dflash_config.get(name)!r}."
            )
    for name in names:
        written = checkpoint.settings.get(name)
        if written is not None and getattr(checkpoint.config, name, None) != written:
            raise Refused(
                f"{path}: {name} is {written!r} but upstream resolved {getattr(checkpoint.config, name, None)!r}."
            )
    if list(checkpoint.config.layer_types) != checkpoint.facts.layer_types:
        raise Refused(
            f"{path}: upstream resolved the layers {list(checkpoint.config.layer_types)}, and the rules of configs "
            f"{checkpoint.facts.layer_types}."
        )
    check_rope(checkpoint.config, checkpoint.facts, path)


def build(checkpoint: Checkpoint, tensors: Tensors, dtype: torch.dtype) -> torch.nn.Module:
    """The upstream model in eval mode with every parameter in `dtype` and the frequency table in float32."""
    with torch.device("meta"):
        model = checkpoint.model_class(copy.deepcopy(checkpoint.config))
    # the table is a float32 buffer whatever the model's dtype; casting the model would cast it too
    model.rotary_emb = make_rotary(model.config)
    state = tensors.load(dtype)
    if checkpoint.family == "dspark":
        confidence_bias(state, checkpoint.adapters)
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        missing = [name for name in model.state_dict() if name not in state]
        prefix = tensors.prefix_of(missing) if missing else None
        if prefix is not None:
            raise Refused(
                f"{tensors.path}: {len(missing)} tensors that the drafter needs are missing, and all of them are there "
                f"behind the common prefix {prefix!r}: the checkpoint was saved from inside a wrapper. Rename the tensors: "
                f"save_file({{name.removeprefix({prefix!r}): tensor for name, tensor in load_file(path).items()}}, path)."
            ) from error
        raise Refused(f"{tensors.path}: does not fit the upstream model. {' '.join(str(error).split())}") from error
    for name, tensor in model.named_parameters():
        if tensor.dtype != dtype or tensor.is_meta:
            raise Refused(f"{tensors.path}: {name} was loaded as {tensor.dtype} on {tensor.device}.")
    if model.rotary_emb.inv_freq.dtype != torch.float32:
        raise Refused(f"{checkpoint.directory}: the frequency table is {model.rotary_emb.inv_freq.dtype}.")
    return model.eval().requires_grad_(False)


def geometry(checkpoint: Checkpoint, model) -> dict:
    """The geometry record of FORMAT.md, from the modules wherever they hold the value."""
    attentions = [layer.self_attn for layer in model.layers]
    first, mlp = attentions[0], model.layers[0].mlp
    head_dim = first.head_dim
    record = {
        "family": checkpoint.family,
        "hidden_size": model.fc.out_features,
        "num_attention_heads": first.q_proj.out_features // head_dim,
        "num_key_value_heads": first.k_proj.out_features // head_dim,
        "head_dim": head_dim,
        "intermediate_size": mlp.gate_proj.out_features,
        "num_hidden_layers": len(model.layers),
        "block_size": model.block_size,
        "mask_token_id": int(model.mask_token_id),
        "vocab_size": checkpoint.facts.sizes.get("vocab_size", 0),
        "rms_norm_eps": model.norm.variance_epsilon,
        "attention_bias": first.q_proj.bias is not None,
        "target_layer_ids": list(model.target_layer_ids),
        "layer_types": list(model.config.layer_types),
        "is_causal": layer_causality(checkpoint.facts, model),
        "sliding_window": [int(attention.sliding_window or 0) for attention in attentions],
        "rope": rope_geometry(model.config, model.rotary_emb),
        "harvest": "shifted" if checkpoint.family == "dspark" else "mask_fill",
        "input_embedding_scale": checkpoint.embedding_scale,
        "output_multiplier": float(checkpoint.value("output_multiplier") or 1.0),
        "final_logit_softcapping": float(checkpoint.value("final_logit_softcapping") or 0.0),
    }
    if record["is_causal"] != checkpoint.facts.is_causal:
        raise Refused(
            f"{checkpoint.directory}: upstream runs its layers with causality {record['is_causal']}, and the rules of "
            f"configs say {checkpoint.facts.is_causal}."
        )
    for attention in attentions:
        sliding = record["layer_types"][attention.layer_idx] == "sliding_attention"
        expected = checkpoint.facts.sliding_window if sliding else None
        if attention.sliding_window != expected:
            raise Refused(
                f"{checkpoint.directory}: layer {attention.layer_idx} runs upstream with window "
                f"{attention.sliding_window}, config.json says {expected}."
            )
    if checkpoint.family == "dflash2":
        conv = model.layers[0].attention_conv
        selector = model.candidate_selector
        record["conv_kernel_size"] = conv.kernel_size
        record["conv_group_size"] = conv.group_size
        record["selector_rank"] = selector.hidden_projection.out_features
        record["selector_top_k"] = selector.top_k
        record["selector_vocab_size"] = int(
            checkpoint.value("selector_vocab_size") or selector.predecessor_codebook.num_embeddings
        )
    if checkpoint.family == "dspark":
        markov = model.markov_head
        confident = model.confidence_head is not None
        record["markov"] = markov.markov_head_type if markov is not None else "none"
        record["markov_rank"] = markov.markov_rank if markov is not None else 0
        record["confidence"] = confident
        record["confidence_with_markov"] = confident and model.confidence_head_with_markov
    return record
