"""The rules of a config.json: which drafter it describes, and what is refused before any module exists.

They are the rules of the C reader (impl/config/*.c), written a second time and tested on the same files
(fixtures/config-rules/, test_config_rules.py): a config that one side takes and the other does not would give oracles
that no check accepts. Faults that do not hide one another are told together; the first gives the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from config_keys import (
    DFLASH, FAMILIES, MISSING, PARAMETERS, ROPE_TYPES, SCALING, TOP, Config, check_foreign, check_missing, check_unread,
    same,
)  # fmt: skip
from refusal import Refused

MAX_INT, THETA, FACTOR, SCALE = 2**31 - 1, 1e12, 1e6, 1e9  # impl/config/config_limits.h
RANK, VOCAB, WINDOW, TARGET_LAYERS, HEAD_DIM, TAPS = 1 << 16, 1 << 24, 1 << 30, 4096, 4096, 64
SIZES = {
    "hidden_size": 1 << 20,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": HEAD_DIM,
    "intermediate_size": 1 << 22,
    "num_hidden_layers": 128,
    "block_size": 4096,
    "vocab_size": VOCAB,
    "num_target_layers": TARGET_LAYERS,
    "max_position_embeddings": MAX_INT,
}
SELECTOR = {"conv_kernel_size": 64, "conv_group_size": 1 << 20, "selector_rank": RANK, "selector_top_k": 4096,
            "selector_vocab_size": VOCAB}  # fmt: skip
PACKAGINGS = {
    "speculators_config": "the speculators package",
    "speculators_model_type": "the speculators package",
    "speculators_version": "the speculators package",
    "transformer_layer_config": "the speculators package",
    "dspark_config": 'a "dspark_config" section',
    "text_config": 'a "text_config" section',
}
# Public spellings of one fact: row k predicts the token after its own position.
SHIFT_KEYS = ("shift_label", "sample_from_anchor", "query_zero_predicts_next")
# Flags of the rotary layout, each with the value that means ours.
LAYOUT = {"rope_interleaved": False, "rope_interleave": False, "interleaved_rope": False, "rope_traditional": False,
          "is_neox_style": True, "rope_is_neox_style": True}  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"
AS_TRAINED = "Write both as the checkpoint was trained."


@dataclass
class Facts:
    """What the rules resolved: sizes by their names, and what the layers are."""

    family: str
    sizes: dict[str, int] = field(default_factory=dict)
    integers: dict = field(default_factory=dict)  # every key that holds integers, as such (64.0 is 64)
    layer_types: list[str] = field(default_factory=list)
    is_causal: list[bool] = field(default_factory=list)
    sliding_window: int = 0  # 0 = no layer slides
    rope: dict = field(default_factory=dict)  # the sections as one
    theta: float = 0
    rope_type: str = "default"
    partial: float = 1  # partial_rotary_factor


def check_packaging(config: Config) -> None:
    for name, packaging in PACKAGINGS.items():
        if config.objects[TOP].get(name) is not None:
            config.refuse(
                "config.packaging.unsupported",
                f'"{name}" says that this drafter is in the packaging of {packaging}, which keeps its keys in other '
                "places. That packaging is not supported yet; do not rewrite the config by hand.",
            )


def read_family(config: Config) -> str:
    found = config.find("architectures", places="TOP")
    if found is None:
        check_missing(config, "dflash")  # with what every family needs
    names = found.value
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        config.wrong(found, "an array of exactly one architecture name")
    known = {"DFlashDraftModel": "dflash", "DFlash2DraftModel": "dflash2"}
    family = known.get(names[0], "dspark" if "DSpark" in names[0] else None)
    if family is None:
        config.refuse(
            "config.family.unknown",
            f'"architectures" names {names[0]!r}. Supported are DFlashDraftModel, DFlash2DraftModel and names that '
            "contain DSpark; other families need a reference of their own.",
        )
    kind = config.string("projector_type")
    if kind is not None and kind not in FAMILIES:
        config.refuse(
            "config.projector.unsupported",
            f'"projector_type" is {kind!r}, which no installed reference implements.',
        )
    if kind == "dspark" and family == "dflash":
        family = "dspark"
    if kind not in (None, family):
        config.refuse(
            "config.family.ambiguous", f'"architectures" says {family}, but "projector_type" says {kind!r}. {AS_TRAINED}'
        )
    check_foreign(config, family)
    for name in SHIFT_KEYS:
        if config.boolean(name) not in (None, family == "dspark"):
            config.refuse(
                "config.harvest.unsupported",
                f'"{name}" is {config.find(name).value}, and {family} drafters are supported only with the other layout '
                "of the block. Which rows become tokens is a property of the training: this layout is not supported yet, "
                "and the key must not be changed, because the drafter would then be judged by the wrong rows.",
            )
    return family


def read_taps(config: Config, family: str, sizes: dict[str, int]) -> list[int]:
    found = config.find("target_layer_ids")
    if not isinstance(found.value, list):
        config.wrong(found, "an array of layer numbers")
    if not 1 <= len(found.value) <= TAPS:
        config.refuse("config.taps.count", f'"target_layer_ids" has {len(found.value)} entries, expected 1 to {TAPS}.')
    low, end = (-1 if family == "dspark" else 0), sizes.get("num_target_layers", TARGET_LAYERS)
    seen = []
    for value in found.value:
        tap = config.whole(found, value, -(2**31), MAX_INT)
        if not low <= tap < end:
            config.refuse("config.taps.range", f'"target_layer_ids" holds {tap}, expected {low} to {end - 1}.')
        if tap in seen:
            config.refuse("config.taps.repeated", f'"target_layer_ids" holds {tap} twice.')
        seen.append(tap)
    return seen


def check_geometry(config: Config, facts: Facts) -> None:
    sizes = facts.sizes
    for name, high in SIZES.items():
        value = config.integer(name, low=1, high=high)
        if value is not None:
            sizes[name] = value
    heads, shared, hidden = sizes["num_attention_heads"], sizes["num_key_value_heads"], sizes["hidden_size"]
    if heads % shared:
        config.refuse("config.heads.indivisible", f'"num_attention_heads" {heads} is no multiple of {shared}. {AS_TRAINED}')
    if "head_dim" not in sizes and (hidden % heads or hidden // heads > HEAD_DIM):
        config.refuse("config.head_dim.indivisible", f'there is no "head_dim", and {hidden} / {heads} is none.')
    sizes.setdefault("head_dim", hidden // heads)
    facts.integers["target_layer_ids"] = read_taps(config, facts.family, sizes)
    mask = config.integer("mask_token_id", low=0, high=VOCAB)
    if mask >= sizes.get("vocab_size", VOCAB + 1):
        config.refuse("config.mask_token.range", f'"mask_token_id" is {mask}, "vocab_size" {sizes["vocab_size"]}.')
    config.number("rms_norm_eps", 0, 1, above=True)
    config.boolean("attention_bias")
    for name in ("input_embedding_scale", "output_multiplier"):
        value = config.number(name, -SCALE, SCALE)
        if value is not None and abs(value) < 1 / SCALE:
            config.refuse("config.key.range", f'"{name}" is {value!r}: it must not be zero or vanishingly small.')
    config.number("final_logit_softcapping", 0, SCALE)
    mode, expected = config.string("attention_mode"), "mha" if heads == shared else "gqa"
    if mode is not None and mode.lower() != expected:
        config.refuse(
            "config.attention.unsupported",
            f'"attention_mode" is {mode!r}, and with {heads} query and {shared} key/value heads only "{expected}" is '
            "supported; do not change the key.",
        )
    for name, twin in (("target_hidden_size", "hidden_size"), ("draft_vocab_size", "vocab_size")):
        if config.integer(name, low=1, high=MAX_INT) not in (None, sizes.get(twin, 0)):
            config.refuse("config.feature.unsupported", f'"{name}" and "{twin}" differ, which is not supported.')


def check_layers(config: Config, facts: Facts) -> None:
    layers = facts.sizes["num_hidden_layers"]
    found = config.find("layer_types")
    if found is not None:
        if not isinstance(found.value, list):
            config.wrong(found, "an array of layer types")
        if len(found.value) != layers:
            config.refuse(
                "config.layer_types.length", f'"layer_types" has {len(found.value)} entries for {layers} layers.'
            )
        for kind in found.value:
            if not isinstance(kind, str):
                config.wrong(found, "an array of strings")
            if kind not in (SLIDING, FULL):
                config.refuse("config.layer_types.unknown", f'"layer_types" holds {kind!r}, which is not supported.')
    use_sliding, use_swa = config.boolean("use_sliding_window"), config.boolean("use_swa")
    window = config.integer("sliding_window", low=1, high=WINDOW)
    is_causal, causal = config.boolean("is_causal"), config.boolean("is_causal", "causal")
    kinds = list(found.value) if found else [SLIDING if use_swa else FULL] * layers
    faults: list[tuple[str, str]] = []
    if found is None and use_swa and is_causal is None:
        faults.append(("config.causal.ambiguous", '"use_swa" is true without "layer_types", so "is_causal" must be given'))
    if found is None and not use_swa and use_sliding and window is not None:
        full_below = config.integer("max_window_layers", low=0, high=MAX_INT)
        if (28 if full_below is None else full_below) < layers:
            faults.append(
                ("config.window.ambiguous", '"use_sliding_window" is true, "max_window_layers" is less than the number '
                 'of layers, and there is no "layer_types", which must say it')
            )  # fmt: skip
    if found is not None and use_swa not in (None, SLIDING in kinds):
        faults.append(("config.window.contradiction", f'"use_swa" is {use_swa}, and "layer_types" says the opposite'))
    if SLIDING in kinds or use_swa:
        if use_sliding is False:
            faults.append(
                ("config.window.contradiction", '"use_sliding_window" is false, and where layers slide it must be true')
            )
        if use_sliding is None and not use_swa:
            faults.append(
                ("config.window.ambiguous", 'there are sliding layers, but no "use_sliding_window": Qwen3Config takes '
                 "its absence as false and drops the window, other engines keep it")
            )  # fmt: skip
        width = config.integer("sliding_window", "swa_window_size", low=1, high=WINDOW)
        if width is None or (found is not None and window is None):
            faults.append(("config.window.missing", 'there are sliding layers, but "sliding_window" is missing or null'))
        facts.sliding_window = width or 0
    facts.layer_types = kinds
    facts.is_causal = [kind == SLIDING if is_causal is None else is_causal for kind in kinds]
    other = config.boolean("sliding_window_non_causal")
    for kind in kinds:
        slides = kind == SLIDING or bool(use_swa)  # what layer_types will say once it agrees
        runs = slides if is_causal is None else is_causal
        names = [name for name, opposite in (
            ("sliding_window_non_causal", slides and other is runs), ("causal", causal not in (None, runs)),
        ) if opposite]  # fmt: skip
        if names:
            faults.append(
                ("config.causal.ambiguous", f'a layer is {"causal" if runs else "not causal"} by "is_causal" or its type, '
                 f'but "{names[0]}" says the opposite: "is_causal" must say it and agree')
            )  # fmt: skip
            break
    if faults:
        config.refuse(
            faults[0][0],
            f"{'; '.join(text for _, text in faults)}. Write every key named here as the checkpoint was trained: another "
            "choice is another drafter.",
        )
    if facts.family == "dspark":
        check_reference_mask(config, facts)


def check_reference_mask(config: Config, facts: Facts) -> None:
    """SpecForge's masks: sliding layers causal inside the block, of which they see the whole; full layers not causal."""
    block = facts.sizes["block_size"]
    small = facts.sliding_window < block and SLIDING in facts.layer_types
    if small or facts.is_causal != [kind == SLIDING for kind in facts.layer_types]:
        config.refuse(
            "config.dspark.mask",
            f"the reference of dspark runs sliding layers causally inside the block and full layers not, whatever "
            f'"is_causal" says, and has no window inside the block ("sliding_window" {facts.sliding_window}, "block_size" '
            f"{block}). Another mask cannot be judged here; do not change the keys.",
        )


def open_rope(config: Config) -> None:
    """The rope places: rope_parameters, of whose entries per layer type one is taken, and rope_scaling."""
    for name in (PARAMETERS, SCALING):
        if config.objects.get(DFLASH, {}).get(name) is not None:
            config.refuse("config.rope.misplaced", f'"{name}" is inside dflash_config, where upstream does not look.')
        section = config.section(name)
        if section is not None:
            config.objects[name] = section
    outer = config.objects.get(PARAMETERS, {})
    nested = {FULL, SLIDING} & set(outer)
    if nested:
        if set(outer) - nested:
            config.refuse("config.rope.mixed", f"{PARAMETERS} holds entries per layer type and keys of its own.")
        config.objects[PARAMETERS] = one_entry(config, outer)
    compare_sections(config)


def one_entry(config: Config, outer: dict) -> dict:
    try:
        found, use_swa = config.find("layer_types"), config.boolean("use_swa")
    except Refused:
        found, use_swa = None, False  # check_layers reports it
    kinds = found.value if found and isinstance(found.value, list) else [SLIDING if use_swa else FULL]
    entries = []
    for kind in (FULL, SLIDING):
        if kind not in kinds:
            continue
        if outer.get(kind) is None:
            config.refuse(MISSING, f'{PARAMETERS} is given per layer type, but has no "{kind}", which layer_types uses.')
        if not isinstance(outer[kind], dict):
            config.refuse("config.key.type", f'"{kind}" in {PARAMETERS} must be an object, but it is {outer[kind]!r}.')
        entries.append(outer[kind])
    if any(not same(entry, entries[0]) for entry in entries):
        config.refuse("config.rope.per_layer", f"{PARAMETERS} differs between {FULL} and {SLIDING}, which is not supported.")
    return entries[0] if entries else outer


def compare_sections(config: Config) -> None:
    """A key of one section that the other does not have is seen by some readers and not by others."""
    for place, other in ((PARAMETERS, SCALING), (SCALING, PARAMETERS)):
        if not config.objects.get(place) or not config.objects.get(other):
            continue
        rest = Config(config.where, {name: entries for name, entries in config.objects.items() if name != place})
        for name, value in config.objects[place].items():
            names = ("rope_type", "type") if name in ("rope_type", "type") else (name,)
            try:
                missing = value is not None and rest.find(*names, places="ANY") is None
            except Refused:
                missing = False  # a conflict, which the reader of the key reports
            if missing:
                config.refuse(
                    "config.rope.sections",
                    f'"{name}" is in {place}, but not in {other}. Readers differ in which of the two they follow, so what '
                    "one says the other must say; write both as the checkpoint was trained.",
                )


def check_rope(config: Config, facts: Facts) -> None:
    asked = [name for name, ours in LAYOUT.items() if config.boolean(name, places="ANY") not in (None, ours)]
    if not asked and (config.string("model_type", places="TOP") or "").startswith("lfm2"):
        asked = ["model_type"]
    if asked:
        config.refuse("config.rope.interleaved", f'"{asked[0]}" asks for interleaved rotary pairs, which is not supported.')
    facts.theta = config.number("rope_theta", 1, THETA, above=True, places="ANY")
    part = config.number("partial_rotary_factor", 0, 1, above=True, places="ANY")
    facts.partial = 1 if part is None else part
    head = facts.sizes["head_dim"]
    rotary = int(head * facts.partial)
    if rotary < 2 or rotary % 2:
        config.refuse("config.rope.rotary_dim", f"{rotary} of {head} dimensions of a head would be rotated.")
    kind = config.string("rope_type", "type", places="ROPE")
    if kind is None and config.find("factor", places="ROPE") is not None:
        config.refuse(MISSING, 'the rope has a "factor" but no "rope_type".')
    if kind not in (None, *ROPE_TYPES):
        config.refuse("config.rope.type", f"rope type {kind!r} is not one of {', '.join(ROPE_TYPES)}.")
    facts.rope_type = kind or "default"
    if facts.rope_type == "default":
        if rotary != head:
            config.refuse(
                "config.rope.partial",
                f'"partial_rotary_factor" is given with the rope type default, and rotates {rotary} of {head} dimensions. '
                "Readers disagree: some rotate that part, and the reference as published rotates whole heads. This "
                "drafter cannot be judged here; do not change the key.",
            )
        return
    factor = config.number("factor", 1, FACTOR, places="ROPE")
    if kind == "linear":
        return
    if kind == "llama3":
        low = config.number("low_freq_factor", 0, FACTOR, above=True, places="ROPE")
        high = config.number("high_freq_factor", 0, FACTOR, above=True, places="ROPE")
        config.integer("original_max_position_embeddings", low=1, high=MAX_INT, places="ANY")
        if high <= low:
            config.refuse("config.rope.range", f"high_freq_factor {high} is not above low_freq_factor {low}. {AS_TRAINED}")
        return
    check_yarn(config, factor, facts.sizes.get("max_position_embeddings", 0))


def check_yarn(config: Config, factor: float | None, longest: int) -> None:
    original = config.integer("original_max_position_embeddings", low=1, high=MAX_INT, places="ANY")
    if factor is None:
        written = any("factor" in config.objects.get(place, {}) for place in (PARAMETERS, SCALING))
        if not written:
            config.refuse(MISSING, 'yarn needs a "factor".')
        if original is None or longest < original:
            config.refuse("config.rope.factor", f'the yarn "factor" is null, and {longest} / {original} is none.')
    config.boolean("truncate", places="ROPE")
    config.number("attention_factor", 0, FACTOR, above=True, places="ROPE")
    fast, slow, _, _ = (
        config.number(name, 0, FACTOR, places="ROPE") for name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    )
    if original is None and not longest:
        config.refuse(
            "config.rope.original_max", 'yarn needs "original_max_position_embeddings" or "max_position_embeddings".'
        )
    if (fast or 32) < (slow or 1):
        config.refuse("config.rope.range", f"yarn's beta_fast {fast or 32} is less than beta_slow {slow or 1}. {AS_TRAINED}")


def check_heads(config: Config, facts: Facts) -> None:
    if facts.family == "dflash2":
        check_selector(config, facts.sizes)
    if facts.family == "dspark":
        check_dspark(config)


def check_selector(config: Config, sizes: dict[str, int]) -> None:
    said = {name: config.integer(name, low=1, high=high) for name, high in SELECTOR.items()}
    if sizes["hidden_size"] % said["conv_group_size"]:
        config.refuse("config.conv.group", f'"conv_group_size" {said["conv_group_size"]} does not divide "hidden_size".')
    choices = said["selector_vocab_size"] or sizes["vocab_size"]
    if choices > sizes["vocab_size"]:
        config.refuse("config.selector.vocab", f'"selector_vocab_size" {choices} is more than "vocab_size".')
    if said["selector_top_k"] > choices:
        config.refuse("config.selector.top_k", f'"selector_top_k" {said["selector_top_k"]} of {choices} tokens.')
    if config.string("conv_kernel_conditioning") not in (None, "input"):
        config.refuse("config.feature.unsupported", '"conv_kernel_conditioning" must be "input" to be supported.')


def check_dspark(config: Config) -> None:
    neutral = {"output_multiplier": (None, 1), "final_logit_softcapping": (None, 0)}
    for name, values in neutral.items():
        if config.number(name, -SCALE, SCALE) not in values:
            config.refuse(
                "config.feature.unsupported",
                f'"{name}" is given, and SpecForge\'s DSpark applies none. No reference computes it; do not change the key.',
            )
    rank, kind = config.integer("markov_rank", low=0, high=RANK) or 0, config.string("markov_head_type")
    if kind is not None and kind.lower() not in ("none", "vanilla", "gated", "rnn"):
        config.refuse("config.markov.kind", f'"markov_head_type" is {kind!r}, which is not supported.')
    if kind is not None and kind.lower() == "none" and rank > 0:
        config.refuse("config.markov.contradiction", f'"markov_head_type" is none, "markov_rank" {rank}. {AS_TRAINED}')
    if config.boolean("enable_confidence_head", "use_confidence_head") is None:
        config.number("confidence_head_alpha", 0, SCALE)
    if config.boolean("confidence_head_with_markov") and rank == 0:
        config.refuse("config.confidence.markov", f'"confidence_head_with_markov" without "markov_rank". {AS_TRAINED}')


def check_backbone(config: Config) -> None:
    activation, model = config.string("hidden_act"), config.string("model_type", places="TOP") or ""
    if activation not in (None, "silu"):
        config.refuse("config.activation.unsupported", f'"hidden_act" is {activation!r}, and only "silu" is supported.')
    if model.startswith(("qwen3_5", "gemma4_text")):
        config.refuse("config.model_type.unsupported", f'"model_type" is {model!r}, whose norms are not those of qwen3.')


def check(raw: dict, where: Path | str) -> Facts:
    """What a parsed config.json describes; refuses with everything that is wrong with it."""
    config = Config(where, {TOP: raw})
    config.objects[DFLASH] = config.section(DFLASH) or {}
    check_packaging(config)
    open_rope(config)
    facts = Facts(read_family(config))
    faults: list[Refused] = []

    def passes(part: Callable, *arguments) -> bool:
        try:
            part(config, *arguments)
        except Refused as fault:
            faults.append(fault)
            return False
        return True

    if passes(check_missing, facts.family) and passes(check_geometry, facts):
        for part in (check_layers, check_rope, check_heads):
            passes(part, facts)
    passes(check_backbone)
    passes(check_unread, facts.family)
    if faults:
        told = [str(faults[0]), *(str(fault).removeprefix(f"{where}: ") for fault in faults[1:])]
        raise Refused(" And: ".join(told), faults[0].code)
    facts.integers |= config.integers
    for place in (SCALING, PARAMETERS):
        facts.rope |= config.objects.get(place, {})
    return facts
