"""Builds the upstream drafter from a checkpoint directory and states what it resolved.

The upstream classes are imported and run, never copied. This file checks that config.json reached them as written,
loads the weights strictly, lists every place where upstream had to be adapted, and derives the geometry record from
the modules themselves. Observing the stages is capture.py; float64 is lift.py.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import dflash.model as upstream
import torch
from safetensors import safe_open
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from lift import Float64Factories

FAMILIES = {"DFlashDraftModel": ("dflash", "DFlashDraftModel"), "DFlash2DraftModel": ("dflash2", "DFlash2DraftModel")}
ROPE_TYPES = ("default", "linear", "yarn", "llama3")
IGNORED_PREFIXES = ("embed_tokens.", "lm_head.", "rotary_emb.")
CODEBOOKS = ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook")


class Refused(RuntimeError):
    """The checkpoint or the request is not one that an honest oracle can be made of."""


@dataclass
class Checkpoint:
    """What a checkpoint directory says, before any module exists."""

    directory: Path
    raw: dict  # config.json as parsed
    config_sha256: str
    family: str
    model_class: type
    config: object  # the transformers config
    adapters: list[str] = field(default_factory=list)

    def value(self, name, default=None):
        """A key of dflash_config or of the top level, as upstream looks it up."""
        return self.raw.get("dflash_config", {}).get(name, self.raw.get(name, default))


def read_json(path: Path) -> tuple[dict, str]:
    """A parsed object and the digest of its bytes; a key given twice in one object is a refusal."""

    def unique(pairs):
        names = [name for name, _ in pairs]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Refused(f"{path}: the key {sorted(twice)[0]!r} occurs twice in one object. Keep one of them.")
        return dict(pairs)

    try:
        data = path.read_bytes()
        parsed = json.loads(data, object_pairs_hook=unique)
    except OSError as error:
        raise Refused(
            f"{path}: cannot be read ({error.strerror}). Check the path; full-size checkpoints are made with "
            "`dflash-parity synth`."
        ) from error
    except ValueError as error:
        raise Refused(f"{path}: is not JSON ({error}).") from error
    if not isinstance(parsed, dict):
        raise Refused(f"{path}: expected a JSON object, found {type(parsed).__name__}.")
    return parsed, hashlib.sha256(data).hexdigest()


def select_family(raw: dict, where: Path) -> tuple[str, type]:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in FAMILIES:
        raise Refused(
            f"{where}: architectures is {names!r}, expected exactly one of {sorted(FAMILIES)}. "
            "Other families need a reference of their own."
        )
    kind = raw.get("dflash_config", {}).get("projector_type", raw.get("projector_type"))
    if kind not in (None, "", "dflash", "dflash2"):
        raise Refused(f"{where}: projector_type {kind!r} is not a model that dflash.model implements.")
    family, class_name = FAMILIES[names[0]]
    return family, getattr(upstream, class_name)


def open_checkpoint(directory: Path) -> Checkpoint:
    path = directory / "config.json"
    raw, digest = read_json(path)
    family, model_class = select_family(raw, path)
    adapters: list[str] = []
    settings = copy.deepcopy(raw)
    nested = settings.get("dflash_config", {})

    for name in ("block_size", "mask_token_id", "target_layer_ids"):
        if nested.get(name, settings.get(name)) is None:
            raise Refused(f"{path}: {name} is missing at the top level and in dflash_config. Upstream would guess it.")
    if settings.get("hidden_act", "silu") != "silu":
        raise Refused(f"{path}: hidden_act is {settings['hidden_act']!r}, expected 'silu'.")
    if "num_target_layers" not in settings:
        # upstream computes the default tap ids even when they are given, and that needs this key
        settings["num_target_layers"] = max(nested.get("target_layer_ids", settings.get("target_layer_ids"))) + 4
        adapters.append(
            "num_target_layers is absent from config.json; a value was supplied because upstream reads it "
            "for default tap ids that it then discards"
        )
    if settings.get("head_dim") is None:
        settings["head_dim"] = settings["hidden_size"] // settings["num_attention_heads"]
        adapters.append(
            "head_dim is absent from config.json; hidden_size / num_attention_heads was supplied, because "
            "Qwen3Config would take 128"
        )
    if "sliding_attention" in (settings.get("layer_types") or []):
        if settings.get("sliding_window") is None:
            raise Refused(f"{path}: layer_types has sliding layers but sliding_window is missing.")
        if settings.get("use_sliding_window") is False:
            raise Refused(f"{path}: layer_types has sliding layers but use_sliding_window is false. Remove one.")
        if settings.get("use_sliding_window") is None:
            settings["use_sliding_window"] = True
            adapters.append(
                "use_sliding_window is absent from config.json; true was supplied, because Qwen3Config "
                "would drop the window of the sliding layers"
            )
    flatten_rope(settings, path, adapters)

    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        config = model_class.config_class.from_dict(settings)
    except Exception as error:  # transformers raises many kinds
        raise Refused(f"{path}: the upstream config class refuses it: {type(error).__name__}: {error}") from error
    checkpoint = Checkpoint(directory, raw, digest, family, model_class, config, adapters)
    check_config(checkpoint, path)
    return checkpoint


def flatten_rope(settings: dict, path: Path, adapters: list[str]) -> None:
    """Upstream's rotary module reads one flat dictionary; per-layer ones that agree are folded into it."""
    if settings.get("rope_parameters") and settings.get("rope_scaling"):
        raise Refused(
            f"{path}: both rope_parameters and rope_scaling are given; upstream would ignore the first. Keep one."
        )
    rope = settings.get("rope_parameters")
    kinds = set(settings.get("layer_types") or [])
    if isinstance(rope, dict) and rope and set(rope) <= {"full_attention", "sliding_attention"}:
        used = [rope[kind] for kind in sorted(kinds or {"full_attention"}) if kind in rope]
        if not used or any(entry != used[0] for entry in used):
            raise Refused(f"{path}: rope_parameters differ by layer type, which the upstream drafter cannot express.")
        settings["rope_parameters"] = dict(used[0])
        adapters.append(
            "rope_parameters is given per layer type with equal entries; it was flattened, because the "
            "upstream rotary module reads one entry"
        )


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
        "dflash_config",
    )
    for name in names:
        written = checkpoint.raw.get(name)
        if written is not None and getattr(checkpoint.config, name, None) != written:
            raise Refused(
                f"{path}: {name} is {written!r} but upstream resolved {getattr(checkpoint.config, name, None)!r}."
            )
    if not checkpoint.raw.get("layer_types") and "sliding_attention" in checkpoint.config.layer_types:
        raise Refused(
            f"{path}: layer_types is missing and upstream derives sliding layers from use_sliding_window and "
            "max_window_layers. Write layer_types out."
        )
    rope = checkpoint.config.rope_parameters
    if rope["rope_type"] not in ROPE_TYPES:
        raise Refused(f"{path}: rope type {rope['rope_type']!r} is not one of {', '.join(ROPE_TYPES)}.")
    written = checkpoint.raw.get("rope_theta")
    if written is not None and rope["rope_theta"] != written:
        raise Refused(
            f"{path}: rope_theta is {written!r} at the top level but upstream resolved {rope['rope_theta']!r}."
        )
    if rope["rope_theta"] is None or (written is None and "rope_theta" not in json.dumps(checkpoint.raw)):
        raise Refused(f"{path}: rope_theta is missing. Upstream would take 10000.")


def rotary_dim(config) -> int:
    return int(config.head_dim * (config.rope_parameters.get("partial_rotary_factor") or 1.0))


def make_rotary(config) -> Qwen3RotaryEmbedding:
    """The upstream rotary module, with transformers' own partial table where the module forgets the factor."""
    rotary = Qwen3RotaryEmbedding(config)
    if config.rope_parameters["rope_type"] == "default" and rotary_dim(config) != config.head_dim:
        rotary.inv_freq.data = init_table(config)
        rotary.original_inv_freq.data = rotary.inv_freq.clone()
    return rotary


def init_table(config) -> torch.Tensor:
    config = copy.deepcopy(config)
    kind = config.rope_parameters["rope_type"]
    if kind == "default" and rotary_dim(config) == config.head_dim:
        return Qwen3RotaryEmbedding.compute_default_rope_parameters(config)[0]
    if kind == "default":
        # linear scaling by one is the default formula, and that function honours partial_rotary_factor
        config.rope_parameters = {**config.rope_parameters, "rope_type": "linear", "factor": 1.0}
        kind = "linear"
    return ROPE_INIT_FUNCTIONS[kind](config)[0]


def float64_table(config) -> torch.Tensor:
    """The same formula as the model's table, evaluated in float64."""
    with Float64Factories():
        return init_table(config)


@dataclass
class Tensors:
    """The tensors of model.safetensors that the model consumes, and their digests."""

    path: Path
    record: dict
    ignored: list[str]

    @classmethod
    def scan(cls, directory: Path) -> Tensors:
        path = directory / "model.safetensors"
        record, ignored = {}, []
        try:
            with path.open("rb") as stream:
                length = int.from_bytes(stream.read(8), "little")
                header = json.loads(stream.read(length))
                base = 8 + length
                for name, entry in sorted(header.items()):
                    if name == "__metadata__":
                        continue
                    if name.startswith(IGNORED_PREFIXES):
                        ignored.append(name)
                        continue
                    begin, end = entry["data_offsets"]
                    stream.seek(base + begin)
                    digest = hashlib.sha256()
                    left = end - begin
                    while left:
                        piece = stream.read(min(left, 1 << 24))
                        if not piece:
                            raise Refused(f"{path}: ends inside the tensor {name}. Write the checkpoint again.")
                        digest.update(piece)
                        left -= len(piece)
                    record[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "sha256": digest.hexdigest()}
        except OSError as error:
            raise Refused(
                f"{path}: cannot be read ({error.strerror}). Expected the weights of the checkpoint; a full-size one "
                "is made on demand with `dflash-parity synth`."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"{path}: its header is not a safetensors header ({error}).") from error
        return cls(path, record, ignored)

    def load(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        state = {}
        with safe_open(str(self.path), "pt") as file:
            for name in self.record:
                target = f"{name}.weight" if name in CODEBOOKS else name
                if target in state:
                    raise Refused(f"{self.path}: {name} is present under two names.")
                state[target] = file.get_tensor(name).to(dtype)
        return state


def build(checkpoint: Checkpoint, tensors: Tensors, dtype: torch.dtype) -> torch.nn.Module:
    """The upstream model in eval mode with every parameter in `dtype` and the frequency table in float32."""
    with torch.device("meta"):
        model = checkpoint.model_class(copy.deepcopy(checkpoint.config))
    # the table is a float32 buffer whatever the model's dtype; casting the model would cast it too
    model.rotary_emb = make_rotary(model.config)
    try:
        model.load_state_dict(tensors.load(dtype), strict=True, assign=True)
    except RuntimeError as error:
        raise Refused(f"{tensors.path}: does not fit the upstream model. {' '.join(str(error).split())}") from error
    for name, tensor in model.named_parameters():
        if tensor.dtype != dtype or tensor.is_meta:
            raise Refused(f"{tensors.path}: {name} was loaded as {tensor.dtype} on {tensor.device}.")
    if model.rotary_emb.inv_freq.dtype != torch.float32:
        raise Refused(f"{checkpoint.directory}: the frequency table is {model.rotary_emb.inv_freq.dtype}.")
    return model.eval().requires_grad_(False)


def source_record() -> dict:
    source = Path(inspect.getsourcefile(upstream))
    return {"module": "dflash.model", "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}


def rope_geometry(config, rotary) -> dict:
    parameters = config.rope_parameters
    kind = parameters["rope_type"]
    record = {
        "type": kind,
        "theta": parameters["rope_theta"],
        "rotary_dim": 2 * rotary.inv_freq.numel(),
        "attention_scaling": float(rotary.attention_scaling),
    }
    if kind != "default":
        record["factor"] = parameters["factor"]
    if kind in ("yarn", "llama3"):
        record["original_max_position_embeddings"] = int(parameters["original_max_position_embeddings"])
    if kind == "yarn":
        if record["factor"] is None:
            record["factor"] = config.max_position_embeddings / parameters["original_max_position_embeddings"]
        record["beta_fast"] = parameters.get("beta_fast") or 32
        record["beta_slow"] = parameters.get("beta_slow") or 1
        record["truncate"] = parameters.get("truncate", True)
    if kind == "llama3":
        record["low_freq_factor"] = parameters["low_freq_factor"]
        record["high_freq_factor"] = parameters["high_freq_factor"]
    return record


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
        "vocab_size": int(checkpoint.raw.get("vocab_size") or 0),
        "rms_norm_eps": model.norm.variance_epsilon,
        "attention_bias": first.q_proj.bias is not None,
        "target_layer_ids": list(model.target_layer_ids),
        "layer_types": list(model.config.layer_types),
        "is_causal": [bool(attention.is_causal) for attention in attentions],
        "sliding_window": [int(attention.sliding_window or 0) for attention in attentions],
        "rope": rope_geometry(model.config, model.rotary_emb),
        "harvest": "mask_fill",
        "input_embedding_scale": float(checkpoint.value("input_embedding_scale") or 1.0),
        "output_multiplier": float(checkpoint.value("output_multiplier") or 1.0),
        "final_logit_softcapping": float(checkpoint.value("final_logit_softcapping") or 0.0),
    }
    for attention in attentions:
        sliding = record["layer_types"][attention.layer_idx] == "sliding_attention"
        expected = checkpoint.raw.get("sliding_window") if sliding else None
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
    return record
