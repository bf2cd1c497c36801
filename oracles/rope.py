"""The rotary table of a config: what the upstream module makes of it."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from config_rules import Facts
from lift import Float64Factories
from refusal import Refused


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


def lay_out_rope(settings: dict, rope: dict, adapters: list[str]) -> None:
    """Upstream's rotary module reads one flat dictionary: entries per layer type that agree, and two sections that say
    the same, become one."""
    sections = [settings[name] for name in ("rope_parameters", "rope_scaling") if settings.get(name)]
    nested = any({"full_attention", "sliding_attention"} & set(section) for section in sections)
    nowhere = rope and "original_max_position_embeddings" not in rope
    outside = {**settings, **settings["dflash_config"]}.get("original_max_position_embeddings") if nowhere else None
    if nested:
        adapters.append(
            "rope_parameters is given per layer type with equal entries; it was flattened, because the "
            "upstream rotary module reads one entry"
        )
    if len(sections) == 2:
        adapters.append("rope_parameters and rope_scaling are both given; upstream, which reads one, was given both as one")
    if outside is not None:
        adapters.append("original_max_position_embeddings was copied into the rope section, where upstream reads it")
    if nested or len(sections) == 2 or outside is not None:
        settings.pop("rope_scaling", None)
        settings["rope_parameters"] = dict(rope)
        if outside is not None:
            settings["rope_parameters"]["original_max_position_embeddings"] = outside


def check_rope(config, facts: Facts, path: Path) -> None:
    """Refuses a theta, a type or a partial rotation that did not reach the upstream config as the rules resolved it."""
    rope = config.rope_parameters
    expected = {"rope_theta": facts.theta, "rope_type": facts.rope_type, "partial_rotary_factor": facts.partial}
    for name, value in expected.items():
        found = rope.get(name, 1.0 if name == "partial_rotary_factor" else None)
        if found != value:
            raise Refused(f"{path}: {name} is {value!r} by the rules of configs, but upstream resolved {found!r}.")


def rotary_dim(config) -> int:
    return int(config.head_dim * (config.rope_parameters.get("partial_rotary_factor") or 1.0))


def make_rotary(config) -> Qwen3RotaryEmbedding:
    with RoundedPower():
        return Qwen3RotaryEmbedding(config)


def init_table(config) -> torch.Tensor:
    config = copy.deepcopy(config)
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return Qwen3RotaryEmbedding.compute_default_rope_parameters(config)[0]
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
