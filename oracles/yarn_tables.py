#!/usr/bin/env python3
"""Evaluates transformers' own YaRN function on a list of configs, under whichever generation of transformers it finds.

Reads a JSON array of config.json objects, writes `{version, tables}` as JSON: for each config the bits of the float32
table and the attention factor, or the error. vectors.py runs it once for each generation, as two interpreters, because
one process holds one transformers. The keys of a config go to the place where the generation looks for them.
"""

from __future__ import annotations

import os

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # as in generate.py

import json
import sys

import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

OLD = int(transformers.__version__.split(".")[0]) < 5


def upstream_config(settings: dict) -> Qwen3Config:
    settings = dict(settings)
    if OLD and "rope_parameters" in settings:
        scaling = dict(settings.pop("rope_parameters"))
        settings["rope_theta"] = scaling.pop("rope_theta")
        settings["rope_scaling"] = scaling
    return Qwen3Config(**settings)


def table(settings: dict) -> dict:
    try:
        config = upstream_config(settings)
        inv_freq, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"bits": inv_freq.numpy().view("<u4").tolist(), "attention_factor": float(factor)}


def main() -> int:
    transformers.logging.set_verbosity_error()
    configs = json.load(sys.stdin)
    json.dump({"version": transformers.__version__, "tables": [table(settings) for settings in configs]}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
