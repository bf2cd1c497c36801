"""The rotary table of a config: what the upstream module makes of it, and what it should when the module forgets a key."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from lift import Float64Factories
from refusal import Refused

ROPE_TYPES = ("default", "linear", "yarn", "llama3")


class RoundedPower(TorchDispatchMode):
    """Powers in float32 as they are: taken in float64 and rounded once.

    The C library's powf is one unit off now and then (1e6 ** (2/7)), and other libraries are elsewhere. At position 2^20
    one unit of a frequency turns an angle by a sixteenth of a radian, so a table must not hang on who made it.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        single = any(isinstance(operand, torch.Tensor) and operand.dtype == torch.float32 for operand in args)
        if func.overloadpacket is not torch.ops.aten.pow or not single:
            return func(*args, **(kwargs or {}))
        # a number beside a float32 tensor is rounded to float32 first, as torch does
        wide = [torch.as_tensor(operand, dtype=torch.float32).double() for operand in args]
        return torch.pow(*wide).float()


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


def check_rope(config, raw: dict, path: Path) -> None:
    """Refuses a scaling that is not supported and a theta that did not reach the upstream config."""
    rope = config.rope_parameters
    if rope["rope_type"] not in ROPE_TYPES:
        raise Refused(f"{path}: rope type {rope['rope_type']!r} is not one of {', '.join(ROPE_TYPES)}.")
    written = raw.get("rope_theta")
    if written is not None and rope["rope_theta"] != written:
        raise Refused(
            f"{path}: rope_theta is {written!r} at the top level but upstream resolved {rope['rope_theta']!r}."
        )
    if rope["rope_theta"] is None or (written is None and "rope_theta" not in json.dumps(raw)):
        raise Refused(f"{path}: rope_theta is missing. Upstream would take 10000.")


def rotary_dim(config) -> int:
    return int(config.head_dim * (config.rope_parameters.get("partial_rotary_factor") or 1.0))


def make_rotary(config) -> Qwen3RotaryEmbedding:
    """The upstream rotary module, with transformers' own partial table where the module forgets the factor."""
    with RoundedPower():
        rotary = Qwen3RotaryEmbedding(config)
    if config.rope_parameters["rope_type"] == "default" and rotary_dim(config) != config.head_dim:
        with RoundedPower():
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
