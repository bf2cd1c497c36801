"""Draws a random small drafter from a seed: its config.json, the recipe of its weights and the input of its oracle.

Everything that a config may say and arithmetic depends on is drawn: the family and its heads, both generations of
transformers' keys, every rotary scaling with its rarer keys, windows and causality, sizes that are multiples of nothing,
head groups, biases, blocks, contexts and positions up to those of the largest models, precision modes and sampling. What
is drawn is always a drafter that both sides should take; which it is not (near ties apart) is a fault of one of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FAMILIES = ("dflash", "dflash2", "dspark")
FURTHEST = 1 << 20  # tokens: the longest context that a published model states
BLOCKS_OF = 32  # values in a block of q8_0 and q4_0: rows of quantised matrices are whole blocks
TARGET_LAYERS = 12


@dataclass
class Drawn:
    config: dict
    weights: dict  # options of `dflash-parity synth`: seed, dtype, profile, lm_head, codebook_suffix
    inputs: dict  # of generate.generate: context, start, seed, profile, stride, precision

    def words(self) -> str:
        config, rope = self.config, self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        rope = next((inner for inner in rope.values() if isinstance(inner, dict)), rope)
        kind = rope.get("rope_type", rope.get("type", "default"))
        return (
            f"{config['architectures'][0]} L {config['num_hidden_layers']} H {config['hidden_size']} "
            f"heads {config['num_attention_heads']}/{config['num_key_value_heads']} hd {config.get('head_dim')} "
            f"F {config['intermediate_size']} rope {kind} {self.weights['dtype']}/{self.inputs['precision']} "
            f"C {self.inputs['context']} start {self.inputs['start']} stride {self.inputs['stride']} "
            f"{self.inputs['profile']}"
        )


def chance(rng: random.Random, share: float) -> bool:
    return rng.random() < share


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return low * (high / low) ** rng.random()


def number(rng: random.Random, low: float, high: float) -> float:
    """A number as people write it, or one with every digit."""
    value = log_uniform(rng, low, high)
    return float(f"{value:.2g}") if chance(rng, 0.7) else value


def draw(seed: int) -> Drawn:
    rng = random.Random(f"geometry {seed}")
    family = rng.choice(FAMILIES)
    precision = rng.choice(("q8_0", "q4_0", "mixed", "fc", "bf16", "f32")) if chance(rng, 0.3) else "stored"
    unit = BLOCKS_OF if precision not in ("stored", "bf16", "f32") else 1
    sizes = draw_sizes(rng, unit)
    config = {
        "architectures": [architecture(rng, family)],
        "attention_bias": chance(rng, 0.3),
        "hidden_act": "silu",
        "model_type": "qwen3",
        "num_target_layers": TARGET_LAYERS,
        "rms_norm_eps": rng.choice((1e-6, 1e-5, 1e-6, number(rng, 1e-7, 1e-3))),
        "vocab_size": rng.randint(40, 400),
        "max_position_embeddings": rng.choice((4096, 40960, 262144, FURTHEST)),
        **sizes,
    }
    drafter = draw_drafter(rng, family, config, unit)
    draw_layers(rng, family, config, drafter["block_size"])
    draw_rope(rng, config)
    head = family != "dflash" or (drafter["block_size"] > 1 and chance(rng, 0.5))
    place(rng, family, config, drafter)
    weights = {
        "seed": rng.randrange(1 << 32),
        "dtype": rng.choice(("bf16", "bf16", "f16", "f32")),
        "profile": "hot" if chance(rng, 0.15) else "unit",
        "lm_head": head,
        "codebook_suffix": family == "dflash2" and chance(rng, 0.3),
    }
    return Drawn(config, weights, draw_inputs(rng, precision, drafter["block_size"]))


def architecture(rng: random.Random, family: str) -> str:
    if family == "dspark":
        return rng.choice(("DSparkDraftModel", "Qwen3DSparkModel"))
    return "DFlashDraftModel" if family == "dflash" else "DFlash2DraftModel"


def draw_sizes(rng: random.Random, unit: int) -> dict:
    """Widths, heads and depth; `unit` divides every row of a matrix."""
    kv_heads, group = rng.randint(1, 4), rng.choice((1, 2, 3, 4, 5, 6))
    heads = kv_heads * group
    head_dim = 2 * rng.randint(4, 20)  # the kernels of attention need 8 channels
    if unit > 1:
        head_dim = rng.choice((8, 16, 32)) if heads % 4 == 0 else 32
    hidden = unit * rng.randint(1, 4) if unit > 1 else rng.randint(16, 140)
    sizes = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": unit * rng.randint(1, 6) if unit > 1 else rng.randint(8, 220),
        "num_hidden_layers": rng.randint(1, 4),
    }
    if unit == 1 and chance(rng, 0.15):  # the size of a head left to the readers: hidden_size / num_attention_heads
        del sizes["head_dim"]
        sizes["hidden_size"] = heads * head_dim
    return sizes


def head_size(config: dict) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def draw_drafter(rng: random.Random, family: str, config: dict, unit: int) -> dict:
    """The keys that make a drafter of a model, wherever they are written."""
    vocab, hidden = config["vocab_size"], config["hidden_size"]
    taps = rng.sample(range(TARGET_LAYERS), rng.randint(1, 4))
    drafter = {
        "block_size": rng.randint(1 if family != "dflash2" else 2, 16),
        "mask_token_id": rng.randrange(vocab),
        "target_layer_ids": sorted(taps) if chance(rng, 0.8) else taps,
    }
    if chance(rng, 0.15):
        drafter["input_embedding_scale"] = number(rng, 0.1, 40)
    if family != "dspark" and chance(rng, 0.3):
        drafter["output_multiplier"] = number(rng, 0.05, 2)
    if family != "dspark" and chance(rng, 0.3):
        drafter["final_logit_softcapping"] = float(rng.randint(5, 50))
    if family == "dflash2":
        drafter["conv_kernel_size"] = rng.randint(1, min(5, drafter["block_size"]))  # upstream shifts no further
        drafter["conv_group_size"] = rng.choice([size for size in range(1, hidden + 1) if hidden % size == 0])
        drafter["selector_rank"] = unit * rng.randint(1, 2) if unit > 1 else rng.randint(1, 40)
        drafter["selector_top_k"] = rng.randint(1, 8)
        if chance(rng, 0.3):
            drafter["selector_vocab_size"] = rng.randint(max(8, vocab // 2), vocab)
    if family == "dspark":
        drafter["projector_type"] = "dspark"
        drafter["markov_head_type"] = rng.choice(("vanilla", "gated", "rnn"))
        drafter["markov_rank"] = unit * rng.randint(1, 2) if unit > 1 else rng.randint(1, 40)
        if chance(rng, 0.2):
            drafter["markov_head_type"], drafter["markov_rank"] = "vanilla", 0
        drafter["enable_confidence_head"] = chance(rng, 0.7)
        with_markov = drafter["enable_confidence_head"] and drafter["markov_rank"] > 0 and chance(rng, 0.5)
        drafter["confidence_head_with_markov"] = with_markov
    return drafter


def draw_layers(rng: random.Random, family: str, config: dict, block: int) -> None:
    """dspark's reference runs sliding layers causally and full ones not, without a window inside the block; what its
    config says of masks must be that."""
    layers = config["num_hidden_layers"]
    types = [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    if chance(rng, 0.35):
        types = ["full_attention"] * layers
    sliding = "sliding_attention" in types
    if sliding or chance(rng, 0.7):  # where all are full the key may be absent
        config["layer_types"] = types
    config["use_sliding_window"] = sliding
    least = block if family == "dspark" else 1
    config["sliding_window"] = int(log_uniform(rng, least, 300)) if sliding else None
    causal = rng.choice((None, None, True, False))
    if family == "dspark" and any((kind == "sliding_attention") != causal for kind in types):
        causal = None
    if causal is not None:
        config["is_causal"] = causal


def draw_rope(rng: random.Random, config: dict) -> None:
    theta = rng.choice((10_000, 500_000, 1_000_000, 10_000_000, number(rng, 100, 1e7)))
    kind = rng.choice(("default", "linear", "yarn", "yarn", "llama3"))
    rope = scaling(rng, kind, config)
    part = None
    even = [size for size in range(2, head_size(config), 2)]
    if kind != "default" and even and chance(rng, 0.2):  # of the default type readers differ whether it is honoured
        size = rng.choice(even)
        if int(head_size(config) * (size / head_size(config))) == size:
            part = size / head_size(config)
    if chance(rng, 0.5):  # transformers 4
        config["rope_theta"] = theta
        config["rope_scaling"] = {rng.choice(("rope_type", "type")): kind, **rope} if kind != "default" else None
        if part is not None:
            config["partial_rotary_factor"] = part
        return
    rope = {"rope_type": kind, **rope, "rope_theta": theta}
    if part is not None:
        rope["partial_rotary_factor"] = part
    kinds = sorted(set(config.get("layer_types") or []))
    config["rope_parameters"] = {name: dict(rope) for name in kinds} if kinds and chance(rng, 0.2) else rope


def scaling(rng: random.Random, kind: str, config: dict) -> dict:
    if kind == "default":
        return {}
    rope = {"factor": number(rng, 1, 64)}
    if kind == "linear":
        return rope
    original = rng.choice((256, 1024, 4096, 8192, 32768, rng.randint(64, 65536)))
    rope["original_max_position_embeddings"] = original
    if kind == "llama3":
        rope["low_freq_factor"] = number(rng, 0.5, 4)
        rope["high_freq_factor"] = rope["low_freq_factor"] + number(rng, 0.1, 16)
        return rope
    if chance(rng, 0.1):  # what a yarn factor of null means
        rope["factor"] = None
        config["max_position_embeddings"] = original * rng.randint(1, 64)
    if chance(rng, 0.5):
        rope["beta_slow"] = number(rng, 0.5, 4)
        rope["beta_fast"] = rope["beta_slow"] + number(rng, 1, 64)
    if chance(rng, 0.5):
        rope["truncate"] = chance(rng, 0.5)
    if chance(rng, 0.25):
        rope["attention_factor"] = number(rng, 0.5, 2)
    if chance(rng, 0.25):
        rope["mscale"] = number(rng, 0.3, 2)
        if chance(rng, 0.7):
            rope["mscale_all_dim"] = number(rng, 0.3, 2)
    return rope


def place(rng: random.Random, family: str, config: dict, drafter: dict) -> None:
    """Writes the drafter's keys at the top level (the DeepSpec style) or in dflash_config; the block size at the top."""
    config["block_size"] = drafter["block_size"]
    rest = {key: value for key, value in drafter.items() if key != "block_size"}
    if family != "dflash2" and chance(rng, 0.3):
        config.update(rest)
    else:
        config["dflash_config"] = rest


def draw_inputs(rng: random.Random, precision: str, block: int) -> dict:
    context = rng.choices((rng.randint(1, 64), rng.randint(65, 200), rng.randint(201, 600)), (70, 22, 8))[0]
    furthest = FURTHEST - block
    start = rng.choice((context, rng.randint(context, 4096), int(log_uniform(rng, context, furthest)), furthest))
    return {
        "context": context,
        "start": start,
        "seed": rng.randrange(1 << 31),
        "profile": rng.choice(("unit", "unit", "hot")),
        "stride": 1 if chance(rng, 0.6) else int(log_uniform(rng, 2, 400)),
        "precision": precision,
    }
