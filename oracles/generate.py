#!/usr/bin/env python3
"""Generates oracle files: runs the upstream drafter on a checkpoint and stores every stage in three precisions.

One checkpoint, or every case of a case list. The layout is FORMAT.md; building the reference is reference.py,
recording is capture.py, float64 is lift.py, inputs are inputs.py and the file is h5out.py.

Exit codes: 0 done, 2 usage, 3 refused, 4 runtime error, 5 no case selected.
"""

from __future__ import annotations

import os

# Torch's vector code rounds float32 pow differently from one instruction set to the next; the scalar code gives the
# frequency table that a correctly rounded power gives, on every machine. Read once, when torch is imported.
os.environ["ATEN_CPU_CAPABILITY"] = "default"

import argparse
import fnmatch
import gc
import hashlib
import platform
import shlex
import sys
import time
from importlib import metadata
from pathlib import Path

import h5py
import torch

import reference
from capture import Runner
from h5out import oracle_file
from inputs import PROFILES, make_inputs
from lift import LiftError
from reference import Refused

ROOT = Path(__file__).resolve().parent.parent
RUNS = (("float64", torch.float64), ("float32", torch.float32), ("bfloat16", torch.bfloat16))
PACKAGES = ("torch", "transformers", "dflash", "safetensors", "h5py", "numpy")
POSITION_LIMIT = 1 << 24  # beyond it float32 no longer holds every integer position

BEFORE_LAYERS = ("ctx.fc", "ctx.features", "rope.inv_freq", "rope.cos", "rope.sin")
IN_LAYER = (
    "attn.norm", "attn.conv_dyn", "attn.conv_in", "attn.q_proj", "attn.k_proj", "attn.v", "attn.q_norm", "attn.k_norm",
    "attn.q_rope", "attn.k_rope", "attn.context", "attn.o_proj", "attn.conv_out", "attn.residual", "mlp.norm",
    "mlp.conv_dyn", "mlp.conv_in", "mlp.gate", "mlp.up", "mlp.act", "mlp.down", "mlp.conv_out", "out",
)  # fmt: skip
AFTER_LAYERS = ("final", "kv.k", "kv.v")

# A float32 run this far from float64 is not a bracket but a mistake in the lifting or in the weights.
FLOAT32_LIMIT = 1e-3


def stage_names(layers: int, family: str) -> list[str]:
    """Every stage that an oracle of this family holds, in forward order."""
    inside = [name for name in IN_LAYER if family == "dflash2" or ".conv_" not in name]
    names = [f"layers.{layer}.{name}" for layer in range(layers) for name in inside]
    return [*BEFORE_LAYERS, *names, *AFTER_LAYERS]


def stored_whole(name: str) -> bool:
    return name in ("ctx.features", "final") or name.startswith("rope.") or name.endswith(".out")


def sample_offset(seed: int, name: str, stride: int, total: int) -> int:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % min(stride, total)


def relative_l2(value: torch.Tensor, truth: torch.Tensor) -> float:
    norm = truth.norm().item()
    distance = (value.double() - truth).norm().item()
    return distance / norm if norm else float(distance != 0)


def portable(path: Path) -> str:
    """A path as the repository knows it; outside it only the name, so that no machine's layout is recorded."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def adapters_of(checkpoint, tensors, rotary_dim: int) -> list[str]:
    config = checkpoint.config
    notes = [
        "torch runs with ATEN_CPU_CAPABILITY=default, so that its float32 pow makes the same frequency table on every "
        "instruction set",
        "float64 run: casts to float32 of float64 tensors are undone, and cosine and sine of the float32 angle are "
        "taken in float64, by a dispatch mode that raises when any other float32 operand or result occurs",
        "float64 run: scaled_dot_product_attention uses its decomposed implementation, so that the mode sees its "
        "operations",
        "rope.inv_freq of the float64 run is the reference's formula evaluated in float64; all three runs use the "
        "float32 table",
        "the model is built without storage and takes the checkpoint's tensors in the run's dtype; the rotary module "
        "is built apart so that its table stays float32",
        "kv.k and kv.v come from a run over a DynamicCache made without the config, which keeps every row of sliding "
        "layers",
    ]
    if rotary_dim != config.head_dim:
        notes.append(
            f"partial rotation: upstream's apply_rotary_pos_emb is called on the first {rotary_dim} of "
            f"{config.head_dim} elements of each head and the rest passes through"
        )
        if config.rope_parameters["rope_type"] == "default":
            notes.append(
                "partial rotation: the upstream rotary module ignores partial_rotary_factor for the default type; its "
                "table was made by transformers' linear scaling with factor 1, which honours it"
            )
    if tensors.ignored:
        notes.append(f"ignored tensors: {', '.join(tensors.ignored)}")
    return notes + checkpoint.adapters


def versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "hdf5": h5py.version.hdf5_version, **packages}


def run_reference(checkpoint, tensors, inputs, rotary_dim: int, log) -> tuple[dict, dict]:
    """Stages of the three runs, and the geometry that the modules resolved."""
    runs, geometry = {}, None
    for name, dtype in RUNS:
        began = time.monotonic()
        model = reference.build(checkpoint, tensors, dtype)
        resolved = reference.geometry(checkpoint, model)
        if geometry is not None and resolved != geometry:
            raise RuntimeError(f"the {name} model resolved another geometry than the one before it")
        geometry = resolved
        runner = Runner(model, inputs, dtype, rotary_dim)
        runs[name] = runner.run_observed()
        note = f"two cached rounds differ from one forward by {runner.cached_difference():.3g} at most"
        if name == "float64":
            runs[name]["rope.inv_freq"] = reference.float64_table(model.config)
            note += f"; {runner.lift_note}"
        log(f"  {name}: {time.monotonic() - began:.1f} s; {note}")
        del model, runner
        gc.collect()
    return runs, geometry


def check_runs(runs: dict, names: list[str]) -> list[tuple[str, float, float]]:
    """Every run holds exactly the expected stages; returns the brackets, stage by stage."""
    brackets = []
    for run, stages in runs.items():
        if set(stages) != set(names):
            wrong = sorted(set(stages) ^ set(names))
            raise RuntimeError(f"the {run} run holds other stages than expected: {', '.join(wrong)}")
    for name in names:
        truth = runs["float64"][name]
        for run in ("float32", "bfloat16"):
            if runs[run][name].shape != truth.shape:
                raise RuntimeError(
                    f"stage {name} has shape {list(runs[run][name].shape)} in {run}, {list(truth.shape)} in float64"
                )
        single, half = (relative_l2(runs[run][name], truth) for run in ("float32", "bfloat16"))
        if single > FLOAT32_LIMIT:
            raise Refused(
                f"stage {name}: the float32 run is {single:.3g} away from float64 (relative L2), more than "
                f"{FLOAT32_LIMIT:g}. Such a bracket would let anything pass; look for a cast that was not lifted."
            )
        brackets.append((name, single, half))
    return brackets


def generate(
    checkpoint_dir: Path, out: Path, *, context: int, start: int, seed: int, stride: int, profile: str, table: bool, log
) -> None:
    if context < 1 or start < context or seed < 0 or stride < 1:
        raise Refused(
            f"context {context}, start {start}, seed {seed}, sample stride {stride}: expected context >= 1, "
            "start >= context, seed >= 0 and stride >= 1."
        )
    began = time.monotonic()
    checkpoint = reference.open_checkpoint(checkpoint_dir)
    tensors = reference.Tensors.scan(checkpoint_dir)
    config = checkpoint.config
    block = int(checkpoint.value("block_size"))
    if start + block > POSITION_LIMIT:
        raise Refused(
            f"start {start}: positions reach {start + block}, beyond {POSITION_LIMIT} float32 skips integers."
        )
    taps = checkpoint.value("target_layer_ids")
    inputs = make_inputs(
        seed=seed,
        profile=profile,
        context=context,
        start=start,
        block=block,
        taps=len(taps),
        hidden=config.hidden_size,
        embedding_scale=float(checkpoint.value("input_embedding_scale") or 1.0),
    )
    rotary_dim = reference.rotary_dim(config)
    log(f"{portable(out)}: {checkpoint.family}, {len(tensors.record)} tensors, context {context}, start {start}")
    runs, geometry = run_reference(checkpoint, tensors, inputs, rotary_dim, log)
    names = stage_names(config.num_hidden_layers, checkpoint.family)
    brackets = check_runs(runs, names)

    command = [
        "oracles/generate.py",
        "--checkpoint",
        portable(checkpoint_dir),
        "--out",
        portable(out),
        "--context",
        str(context),
        "--start",
        str(start),
        "--seed",
        str(seed),
        "--sample-stride",
        str(stride),
        "--profile",
        profile,
        "--threads",
        str(torch.get_num_threads()),
    ]  # the matrix library's sums depend on the number of threads
    provenance = {
        "generator": "oracles/generate.py",
        "command": shlex.join(command),
        "packages": versions(),
        "reference": reference.source_record(),
        "config_sha256": checkpoint.config_sha256,
        "tensors": tensors.record,
        "seed": seed,
        "adapters": adapters_of(checkpoint, tensors, rotary_dim),
    }
    with oracle_file(out) as writer:
        writer.document("geometry", geometry)
        writer.document("provenance", provenance)
        writer.tensor("inputs/target_hidden", inputs.target_hidden)
        writer.tensor("inputs/noise_embedding", inputs.noise_embedding)
        writer.tensor("inputs/positions", inputs.positions.to(torch.int32))
        for run, _ in RUNS:
            for name in names:
                tensor = runs[run][name]
                sampled = stride > 1 and not stored_whole(name)
                offset = sample_offset(seed, name, stride, tensor.numel()) if sampled else 0
                writer.tensor(f"stages/{run}/{name}", tensor, stride if sampled else 1, offset)
        stored = writer.data_bytes
    size = out.stat().st_size
    worst = max(brackets, key=lambda row: row[1])
    log(
        f"  {len(names)} stages, {stored} bytes of data in a file of {size} ({size / stored - 1:.1%} over); "
        f"final f32 {brackets[-3][1]:.2e} bf16 {brackets[-3][2]:.2e}; widest f32 {worst[1]:.2e} at {worst[0]}; "
        f"{time.monotonic() - began:.1f} s"
    )
    if table:
        print(f"{'stage':28} {'float32':>10} {'bfloat16':>10}   relative L2 against float64")
        for name, single, half in brackets:
            print(f"{name:28} {single:10.3e} {half:10.3e}")


CASE_KEYS = {
    "name": str,
    "checkpoint": str,
    "oracle": str,
    "context": int,
    "start": int,
    "input_seed": int,
    "input_profile": str,
    "sample_stride": int,
}


def read_cases(path: Path, only: str | None) -> list[dict]:
    listing, _ = reference.read_json(path)
    if listing.get("schema") != 1 or not isinstance(listing.get("cases"), list):
        raise Refused(f"{path}: expected an object with schema 1 and a list of cases.")
    for case in listing["cases"]:
        for key, kind in CASE_KEYS.items():
            value = case.get(key) if isinstance(case, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool):
                raise Refused(
                    f"{path}: case {case.get('name') if isinstance(case, dict) else case!r}: {key} is "
                    f"{value!r}, expected {kind.__name__}."
                )
        if case["input_profile"] not in PROFILES:
            raise Refused(
                f"{path}: case {case['name']}: input_profile is {case['input_profile']!r}, expected one of "
                f"{', '.join(PROFILES)}."
            )
    return [case for case in listing["cases"] if only is None or fnmatch.fnmatchcase(case["name"], only)]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="generate.py", description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", type=Path, metavar="DIR", help="checkpoint in Hugging Face form")
    what.add_argument("--cases", type=Path, metavar="FILE", help="case list, e.g. fixtures/cases.json")
    parser.add_argument("--only", metavar="GLOB", help="with --cases: names to generate")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--context", type=int, metavar="C", help="context rows")
    parser.add_argument("--start", type=int, metavar="POS", help="position of the block's first row, at least C")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the inputs")
    parser.add_argument(
        "--sample-stride", type=int, default=1, metavar="S", help="store every S-th element (default 1)"
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), default="unit", help="size of the inputs (default unit)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="torch threads (default 2)")
    parser.add_argument("--table", action="store_true", help="print the bracket of every stage")
    options = parser.parse_args(argv)
    single = {name: getattr(options, name) for name in ("out", "context", "start", "seed")}
    if options.checkpoint and (options.only or None in single.values()):
        parser.error("--checkpoint needs --out, --context, --start and --seed, and takes no --only")
    if options.cases and any(value is not None for value in single.values()):
        parser.error("--cases takes no --out, --context, --start or --seed; they come from the list")
    if options.threads < 1:
        parser.error("--threads must be at least 1")
    return options


def main(argv: list[str]) -> int:
    options = parse(argv)

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    where = "generate.py"
    try:
        capability = torch.backends.cpu.get_cpu_capability()
        if capability != "DEFAULT":
            raise RuntimeError(f"torch runs with CPU capability {capability}, expected DEFAULT")
        torch.set_num_threads(options.threads)
        if options.checkpoint:
            generate(
                options.checkpoint,
                options.out,
                context=options.context,
                start=options.start,
                seed=options.seed,
                stride=options.sample_stride,
                profile=options.profile,
                table=options.table,
                log=log,
            )
            return 0
        cases = read_cases(options.cases, options.only)
        if not cases:
            log(f"generate.py: no case of {options.cases} matches {options.only or 'anything'}; nothing was generated.")
            return 5
        for case in cases:
            where = f"generate.py: case {case['name']}"
            generate(
                ROOT / case["checkpoint"],
                ROOT / case["oracle"],
                context=case["context"],
                start=case["start"],
                seed=case["input_seed"],
                stride=case["sample_stride"],
                profile=case["input_profile"],
                table=options.table,
                log=log,
            )
    except Refused as error:
        log(f"{where}: refused: {error}")
        return 3
    except (LiftError, OSError, RuntimeError, MemoryError) as error:
        log(f"{where}: {type(error).__name__}: {error}")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
