#!/usr/bin/env python3
"""Generates oracle files: runs the upstream drafter on a checkpoint and stores every stage in three precisions.

One checkpoint, or every case of a case list (cases.py). The layout is FORMAT.md; building the reference is
reference.py, running and recording it runner.py, capture.py and proposals.py, a second reference second.py, float64 is
lift.py, inputs are inputs.py and the file is h5out.py.

Exit codes: 0 done, 2 usage, 3 refused, 4 runtime error, 5 no case selected.
"""

from __future__ import annotations

import os

# Torch's vector code rounds differently from one instruction set to the next; the scalar code gives the same runs on
# every machine. Read once, when torch is imported.
os.environ["ATEN_CPU_CAPABILITY"] = "default"

import argparse
import functools
import gc
import platform
import shlex
import sys
import time
from pathlib import Path

import h5py
import torch

import manifest
import packages
import reference
import second
from cases import read_cases, read_list, root_of
from embedding import EMBEDDING, Embedding
from families import specforge_masks
from h5out import oracle_file
from head import split_source
from inputs import PROFILES, make_anchor, make_inputs
from lift import LiftError
from orders import CHAIN, ORDERS, distances, spread
from precision import MODES
from proposals import NearTie, Proposer, check_margins
from refusal import Refused
from rope import float64_table, rotary_dim
from runner import Runner
from sketch import PROJECTIONS, sketch
from spacing import check_gaps, gaps_text, parse_gaps
from stages import FULL_STAGES, Storage, stage_names
from weights import Tensors

ROOT = Path(__file__).resolve().parent.parent
RUNS = (("float64", torch.float64), ("float32", torch.float32), ("bfloat16", torch.bfloat16))
PACKAGES = ("torch", "transformers", "dflash", "safetensors", "h5py", "numpy")
POSITION_LIMIT = 1 << 24  # beyond it float32 no longer holds every integer position

SEED_LIMIT = 1 << 52  # every JSON reader holds it and its successors exactly

# A float32 run this far from float64 is no rounding but a mistake in the lifting or in the weights.
FLOAT32_LIMIT = 1e-3


def portable(path: Path) -> str:
    """A path as the repository knows it; outside it only the name, so that no machine's layout is recorded."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def adapters_of(checkpoint, tensors, rotary: int, proposals: list[str], spaced: bool) -> list[str]:
    config = checkpoint.config
    notes = [
        "torch runs with ATEN_CPU_CAPABILITY=default, so that it rounds alike on every instruction set; the powers of the "
        "frequency table are taken in float64 and rounded once, because the C library's powf is a unit off now and then",
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
        f"float32_orders: beside the reference's own order, {ORDERS} runs take the terms of linear products, selector scores, "
        f"norm means (in chains of {CHAIN}) and attention (channels and keys) in other orders",
        f"sketches: {PROJECTIONS} random sign projections of every row of a sampled stage and its root mean square, added in "
        "float64",
    ]
    if rotary != config.head_dim:
        notes.append(
            f"partial rotation: upstream's apply_rotary_pos_emb is called on the first {rotary} of "
            f"{config.head_dim} elements of each head and the rest passes through"
        )
    if spaced:
        notes.append(
            "positions have gaps: upstream rotates by them, but its masks count rows; its mask function was asked about a "
            "context without gaps, and the rows that exist were picked from its answer"
        )
    if tensors.ignored:
        notes.append(f"ignored tensors: {', '.join(tensors.ignored)}")
    if checkpoint.family == "dspark":
        notes.append(
            "SpecForge's model takes its masks from its caller: sliding layers get the one that SpecForge's training code "
            "makes (create_dflash_sdpa_mask), the others none; both were found equal to the masks of the geometry record"
        )
    if tensors.embedding is not None:
        notes.append(
            f"the block is embedded by upstream's lookup in the checkpoint's {EMBEDDING}, in each run's own dtype, times "
            "input_embedding_scale in that dtype; inputs/noise_embedding holds the float32 run's rows"
        )
    if tensors.precision != "stored":
        notes.append(
            f"precision {tensors.precision}: matrices were encoded and decoded once, by torch (bf16) and by gguf "
            "(q8_0, q4_0), before the model took them"
        )
    if proposals:
        owner = "checkpoint" if tensors.head_path == tensors.path else "target"
        notes.append(f"the head is the {owner}'s {tensors.head['tensor']}, applied to the harvested rows a part of its rows at a time")
    if "select.path" in proposals:
        notes.append(
            "selector: upstream's select runs with a top-k that sorts descending, ties to the lower id; its own top-k "
            "drafts the same tokens in float64 and float32"
        )
    if "markov.tokens" in proposals:
        notes.append(
            "Markov: sample_block_tokens is called on all rows of the block; SpecForge's own sample script leaves out "
            "the first"
        )
    if "confidence.window" in proposals:
        notes.append("confidence.window is the survival rule at 0.5 with cap B + 1 on the run's own confidence.raw")
    return notes + checkpoint.adapters


def versions(checkpoint, precision: str) -> dict[str, str]:
    names = list(PACKAGES)
    if checkpoint.family == "dspark":
        names.append("specforge")
    if precision not in ("stored", "f32", "bf16"):
        names.append("gguf")
    versions = {name: packages.version(name) for name in names}
    return {"python": platform.python_version(), "hdf5": h5py.version.hdf5_version, **versions}


def sketch_of(storage: Storage, name: str, tensor: torch.Tensor):
    """The sketch of a stage that is stored as samples; None for one that is stored whole."""
    return sketch(name, storage.seed, tensor) if storage.sampled(name, list(tensor.shape)) else None


def write_stages(writer, runs: dict, names: list[str], storage: Storage) -> None:
    """Every stage in every run, and of a sampled one the sketches and, in float64, some whole rows."""
    for run, _ in RUNS:
        for name in names:
            tensor = runs[run][name]
            writer.tensor(f"stages/{run}/{name}", tensor, *storage.samples(name, list(tensor.shape)))
    sampled = [name for name in names if storage.sampled(name, list(runs["float64"][name].shape))]
    for name in sampled:
        tensor = runs["float64"][name]
        rows = storage.rows(name, list(tensor.shape))
        if rows:
            writer.rows(f"rows/float64/{name}", tensor.flatten(0, 1) if name.startswith("kv.") else tensor, rows)
    if sampled:
        writer.sketches(storage.seed)
    for run, _ in RUNS:
        # what bfloat16 is off by is far above a rounding in float32
        held = torch.float32 if run == "bfloat16" else torch.float64
        for name in sampled:
            values = torch.from_numpy(sketch(name, storage.seed, runs[run][name]))
            writer.tensor(f"sketch/{run}/{name}", values.to(held))


def run_reference(checkpoint, tensors, inputs, rotary: int, proposer: Proposer | None, storage: Storage, log):
    """Stages of the three runs, the geometry that the modules resolved, and the spread of float32 (orders.py)."""
    runs, geometry, largest = {}, None, {}
    for name, dtype in RUNS:
        began = time.monotonic()
        model = reference.build(checkpoint, tensors, dtype)
        resolved = reference.geometry(checkpoint, model)
        if geometry is not None and resolved != geometry:
            raise RuntimeError(f"the {name} model resolved another geometry than the one before it")
        geometry = resolved
        masks = None
        if checkpoint.family == "dspark":
            masks = functools.partial(specforge_masks, checkpoint.facts, model)
        runner = Runner(model, inputs, dtype, rotary, masks)
        runs[name] = runner.run_observed()
        note = f"two cached rounds differ from one forward by {runner.cached_difference():.3g} at most"
        if name == "float64":
            note += f"; {runner.lift_note}"
        if proposer is not None:
            runs[name] |= proposer.run(runner, runs[name]["final"])
        if name == "float64":
            runs[name]["rope.inv_freq"] = float64_table(model.config)
        if name == "float32":
            if proposer is not None:
                check_margins(runs, geometry.get("selector_top_k", 1), geometry.get("selector_vocab_size", 0))
            largest = spread(runner, proposer, runs["float64"], runs[name], functools.partial(sketch_of, storage))
        log(f"  {name}: {time.monotonic() - began:.1f} s; {note}")
        del model, runner
        gc.collect()
    return runs, geometry, largest


def check_runs(runs: dict, names: list[str]) -> list[tuple[str, float, float]]:
    """Every run holds exactly the expected stages; returns the reference spreads, stage by stage."""
    spreads = []
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
        single, half = (distances(name, runs[run][name], truth)[0] for run in ("float32", "bfloat16"))
        if single > FLOAT32_LIMIT:
            raise Refused(
                f"stage {name}: the float32 run is {single:.3g} away from float64 (relative L2), more than "
                f"{FLOAT32_LIMIT:g}. Such a spread would let anything pass; look for a cast that was not lifted."
            )
        spreads.append((name, single, half))
    return spreads


SEEDS = 32  # tried before a case is given up


def make_run(checkpoint, tensors, rotary: int, *, context, start, seed, profile, gaps, stride, full_stages, log):
    """Inputs, anchor, runs, geometry, spread, storage and the seeds passed over, from the first seed without a near tie."""
    config, passed = checkpoint.config, []
    block = int(checkpoint.value("block_size"))
    taps = checkpoint.value("target_layer_ids")
    for candidate in range(seed, seed + SEEDS):
        inputs = make_inputs(
            seed=candidate,
            profile=profile,
            context=context,
            start=start,
            block=block,
            taps=len(taps),
            hidden=config.hidden_size,
            embedding_scale=checkpoint.embedding_scale,
            gaps=gaps,
        )
        proposer = None
        choices = checkpoint.value("selector_vocab_size") or config.vocab_size
        if tensors.embedding is not None:  # a config need not say how many rows the table has
            choices = min(choices, tensors.embedding["shape"][0])
        if tensors.embedding is not None or tensors.head is not None:
            anchor = make_anchor(candidate, choices, checkpoint.value("mask_token_id"))
        if tensors.embedding is not None:
            inputs.embedding = Embedding.of_block(checkpoint, tensors, anchor)
        if tensors.head is not None:
            proposer = Proposer(checkpoint, tensors, anchor)
        storage = Storage(
            stride=stride, full_stages=list(FULL_STAGES if full_stages is None else full_stages), seed=candidate,
            context=context, taps=checkpoint.value("conv_kernel_size") or 1,
        )  # fmt: skip
        try:
            runs, geometry, largest = run_reference(checkpoint, tensors, inputs, rotary, proposer, storage, log)
        except NearTie as tie:
            log(f"  seed {candidate} is passed over: {tie}")
            passed.append({"seed": candidate, "why": str(tie)})
            continue
        return inputs, proposer, runs, geometry, largest, storage, passed
    raise Refused(f"seeds {seed} to {seed + SEEDS - 1} all give near ties; the last one: {passed[-1]['why']}")


def request_of(context, start, seed, profile, stride, full_stages, gaps) -> dict:
    """What was asked for, under the names of a case list: the gate holds a case against its oracle by it."""
    request = {"context": context, "start": start, "input_seed": seed, "input_profile": profile, "sample_stride": stride}
    if full_stages is not None:
        request["full_stages"] = full_stages
    if gaps:
        request["gaps"] = [list(gap) for gap in gaps]
    return request


def generate(
    checkpoint_dir: Path, out: Path, *, context: int, start: int, seed: int, stride: int, profile: str, precision: str,
    full_stages: list[str] | None, table: bool, log, head: str | None = None, gaps: list[list[int]] = (),
) -> None:  # fmt: skip
    if context < 1 or start < context or not 0 <= seed < SEED_LIMIT or stride < 1:
        raise Refused(
            f"context {context}, start {start}, seed {seed}, sample stride {stride}: expected context >= 1, "
            f"start >= context, seed from 0 to {SEED_LIMIT - 1} and stride >= 1."
        )
    began = time.monotonic()
    checkpoint = reference.open_checkpoint(checkpoint_dir)
    tensors = Tensors.scan(checkpoint_dir, precision, head)
    config = checkpoint.config
    block = int(checkpoint.value("block_size"))
    if start + block > POSITION_LIMIT:
        raise Refused(
            f"start {start}: positions reach {start + block}, beyond {POSITION_LIMIT} float32 skips integers."
        )
    rotary = rotary_dim(config)
    log(f"{portable(out)}: {checkpoint.family}, {len(tensors.record)} tensors, context {context}, start {start}")
    inputs, proposer, runs, geometry, largest, storage, passed = make_run(
        checkpoint, tensors, rotary, context=context, start=start, seed=seed, profile=profile, gaps=gaps, stride=stride,
        full_stages=full_stages, log=log,
    )  # fmt: skip
    proposals = proposer.stage_names() if proposer is not None else []
    embedded = inputs.embedding is not None
    names = stage_names(config.num_hidden_layers, checkpoint.family, proposals, embedded)
    spreads = check_runs(runs, names)
    anchor = proposer.anchor if proposer is not None else None
    opinion = second.opinion(checkpoint, tensors, inputs, rotary, anchor, runs, log)

    if proposer is None and checkpoint.family != "dflash":
        log(f"  no output head: a check refuses an oracle of {checkpoint.family} without one; give --lm-head")

    command = ["oracles/generate.py", "--checkpoint", portable(checkpoint_dir), "--out", portable(out),
               "--context", str(context), "--start", str(start), "--seed", str(seed), "--sample-stride", str(stride),
               "--profile", profile]  # fmt: skip
    if head is not None:
        log(f"  the output head is {tensors.head['tensor']} of {tensors.head_path}")
        file, tensor = split_source(head)
        command += ["--lm-head", portable(file) + (f":{tensor}" if tensor else "")]
    if precision != "stored":
        command += ["--precision", precision]
    if gaps:
        command += ["--gaps", gaps_text(gaps)]
    if full_stages is not None:
        command += ["--full-stages", ",".join(full_stages)]
    command += ["--threads", str(torch.get_num_threads())]  # the matrix library's sums depend on their number
    provenance = {
        "generator": "oracles/generate.py",
        "command": shlex.join(command),
        "packages": versions(checkpoint, precision),
        "reference": packages.source_record(sys.modules[checkpoint.model_class.__module__]),
        "config_sha256": checkpoint.config_sha256,
        "tensors": tensors.record,
        "request": request_of(context, start, seed, profile, stride, full_stages, gaps),
        "seed": storage.seed,
        "adapters": adapters_of(checkpoint, tensors, rotary, proposals, bool(gaps)),
        "float32_orders": {"orders": 1 + ORDERS, "largest": largest},
    }
    if precision != "stored":
        provenance["precision"] = precision
    if proposer is not None:
        provenance["head"] = tensors.head
        provenance["seeds_passed_over"] = passed
    if embedded:
        provenance["embedding"] = tensors.embedding
    if opinion is not None:
        provenance["second_opinion"] = opinion
    with oracle_file(out) as writer:
        writer.document("geometry", geometry)
        writer.document("provenance", provenance)
        writer.tensor("inputs/target_hidden", inputs.target_hidden)
        # with the table: the float32 run's rows, which float32 holds exactly
        writer.tensor("inputs/noise_embedding", inputs.noise(torch.float32) if embedded else inputs.noise_embedding)
        writer.tensor("inputs/positions", inputs.positions.to(torch.int32))
        if proposer is not None:
            writer.tensor("inputs/anchor", torch.tensor([anchor], dtype=torch.int32))
        if embedded:
            writer.tensor("inputs/block_ids", inputs.embedding.ids.to(torch.int32))
        write_stages(writer, runs, names, storage)
        stored = writer.data_bytes
    size = out.stat().st_size
    worst = max(spreads, key=lambda row: row[1])
    final = spreads[names.index("final")]
    log(
        f"  {len(names)} stages, {stored} bytes of data in a file of {size} ({size / stored - 1:.1%} over); "
        f"final f32 {final[1]:.2e} bf16 {final[2]:.2e}; widest f32 {worst[1]:.2e} at {worst[0]}; "
        f"{time.monotonic() - began:.1f} s"
    )
    if table:
        print(f"{'stage':28} {'float32':>10} {'bfloat16':>10}   relative L2 against float64")
        for name, single, half in spreads:
            print(f"{name:28} {single:10.3e} {half:10.3e}")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="generate.py", description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", type=Path, metavar="DIR", help="checkpoint in Hugging Face form")
    what.add_argument("--cases", type=Path, metavar="FILE", help="case list, e.g. fixtures/cases.json")
    parser.add_argument("--only", metavar="GLOB", help="with --cases: names to generate")
    parser.add_argument(
        "--lm-head", metavar="FILE[:TENSOR]",
        help="file of the target and the output head in it (default: of FILE lm_head.weight, else the same behind a known "
        "prefix, else the tied embedding; without the option the checkpoint's own lm_head.weight)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--context", type=int, metavar="C", help="context rows")
    parser.add_argument("--start", type=int, metavar="POS", help="position of the block's first row, at least C")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the inputs")
    parser.add_argument(
        "--sample-stride", type=int, default=1, metavar="S", help="store about every S-th element (default 1)"
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), default="unit", help="size of the inputs (default unit)")
    parser.add_argument("--precision", choices=MODES, default="stored", help="how the matrices are held (default stored)")
    parser.add_argument(
        "--full-stages", type=lambda text: text.split(",") if text else [], metavar="GLOB,...",
        help="stages stored whole beside a sampling stride",
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="torch threads (default 2)")
    parser.add_argument("--gaps", metavar="ROW:N,...", help="leave N positions out before these rows of the context")
    parser.add_argument("--table", action="store_true", help="print the reference spread of every stage")
    options = parser.parse_args(argv)
    single = {name: getattr(options, name) for name in ("out", "context", "start", "seed")}
    if options.checkpoint and (options.only or None in single.values()):
        parser.error("--checkpoint needs --out, --context, --start and --seed, and takes no --only")
    if options.cases and any(value is not None for value in single.values()):
        parser.error("--cases takes no --out, --context, --start or --seed; they come from the list")
    taken = (options.full_stages, options.lm_head, options.gaps)
    if options.cases and (options.precision != "stored" or any(value is not None for value in taken)):
        parser.error("--cases takes no --precision, --full-stages, --gaps or --lm-head; they come from the list")
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
            gaps = [] if options.gaps is None else parse_gaps(options.gaps)
            check_gaps(gaps, "--gaps")
            generate(
                options.checkpoint,
                options.out,
                context=options.context,
                start=options.start,
                seed=options.seed,
                stride=options.sample_stride,
                profile=options.profile,
                precision=options.precision,
                full_stages=options.full_stages,
                table=options.table,
                log=log,
                head=options.lm_head,
                gaps=gaps,
            )
            return 0
        cases = read_cases(options.cases, options.only)
        if not cases:
            log(f"generate.py: no case of {options.cases} matches {options.only or 'anything'}; nothing was generated.")
            return 5
        listing = read_list(options.cases)
        root = root_of(options.cases, listing)
        listed = [case["oracle"] for case in listing["cases"]]
        written_by = manifest.signature() if "manifest" in listing else None
        for case in cases:
            where = f"generate.py: case {case['name']}"
            generate(
                root / case["checkpoint"],
                root / case["oracle"],
                context=case["context"],
                start=case["start"],
                seed=case["input_seed"],
                stride=case["sample_stride"],
                profile=case["input_profile"],
                precision=case.get("precision", "stored"),
                full_stages=case.get("full_stages"),
                gaps=case.get("gaps", []),
                table=options.table,
                log=log,
                head=str(root / case["lm_head"]) if "lm_head" in case else None,
            )
            if written_by is not None:
                manifest.renew(root / listing["manifest"], case["oracle"], root / case["oracle"], written_by, listed)
    except Refused as error:
        log(f"{where}: refused: {error}")
        return 3
    except (LiftError, OSError, RuntimeError, MemoryError) as error:
        log(f"{where}: {type(error).__name__}: {error}")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
