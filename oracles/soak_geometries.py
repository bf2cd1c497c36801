#!/usr/bin/env python3
"""Looks for false alarms over random geometries: fresh drafters, each with an oracle of its own, each judged.

A run is a function of its seed: draw_geometry.py draws a small drafter, `dflash-parity synth` writes its weights, the
reference computes its oracle (generate.py) and `dflash-parity check` holds the program against it. Anything but a pass
is printed with its seed; `--seed N --runs 1` makes it again and `--keep DIR` keeps its files. What the reference itself
cannot judge (near ties, masks that it does not have) is no pass either: it is counted apart, with the reasons.

Exit codes: 0 every drafter that has an oracle passed, 1 an alarm or a refusal, 2 usage, 4 a run that could not be made,
5 nothing was judged.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import generate
from draw_geometry import Drawn, draw
from lift import LiftError
from refusal import Refused

LEAST = 5  # headrooms that are listed
PASS, ALARM, REFUSED, NO_ORACLE, ERROR = "pass", "alarm", "refused", "no oracle", "error"


@dataclass
class Outcome:
    """What became of one run."""

    seed: int
    kind: str
    words: str  # the geometry
    why: str = ""
    stages: int = 0
    least: tuple[float, str] = (1.0, "")  # headroom and its stage
    fullest: tuple[float, str] = (0.0, "")  # share of an isolated bound and its stage
    failed: list[str] = field(default_factory=list)


def synth_command(program: Path, drawn: Drawn, config: Path, folder: Path) -> list[str]:
    weights = drawn.weights
    command = [str(program), "synth", "--config", str(config), "--out", str(folder), "--threads", "1"]
    for option in ("seed", "dtype", "profile"):
        command += [f"--{option}", str(weights[option])]
    return command + ["--" + key.replace("_", "-") for key in ("lm_head", "codebook_suffix") if weights[key]]


def check_command(program: Path, drawn: Drawn, folder: Path, oracle: Path) -> list[str]:
    command = [str(program), "check", "--checkpoint", str(folder), "--oracle", str(oracle), "--json", "--threads", "1"]
    return command + ["--precision", drawn.inputs["precision"]]


def judged(outcome: Outcome, item: dict) -> Outcome:
    """Takes what a check of one case said."""
    for stage in item["stages"]:
        outcome.stages += 1
        alone = stage["isolated"]
        if not stage["pass"]:
            outcome.failed.append(f"{stage['name']} ({stage['headroom']} headroom)")
        if alone and not alone["pass"]:
            outcome.failed.append(f"{stage['name']} alone ({alone['share']} of its bound)")
        if isinstance(stage["headroom"], (int, float)) and not stage["exact"]:
            outcome.least = min(outcome.least, (stage["headroom"], stage["name"]))
        if alone and isinstance(alone["share"], (int, float)):
            outcome.fullest = max(outcome.fullest, (alone["share"], stage["name"]))
    outcome.failed += [variant["name"] for variant in item["rounds"] if not variant["identical"]]
    return outcome


def one_run(program: Path, seed: int, folder: Path) -> Outcome:
    drawn = draw(seed)
    outcome = Outcome(seed, PASS, drawn.words())
    config, oracle = folder / "drawn.json", folder / "oracle.h5"
    config.write_text(json.dumps(drawn.config, indent=1) + "\n")
    made = subprocess.run(synth_command(program, drawn, config, folder), capture_output=True, text=True)
    if made.returncode != 0:
        outcome.kind, outcome.why = (REFUSED if made.returncode == 3 else ERROR), made.stderr.strip()
        return outcome
    try:
        generate.generate(folder, oracle, full_stages=None, table=False, log=lambda line: None, **drawn.inputs)
    except Refused as error:
        outcome.kind, outcome.why = NO_ORACLE, str(error)
        return outcome
    except (LiftError, OSError, RuntimeError, MemoryError, KeyError, ValueError, TypeError, IndexError) as error:
        outcome.kind, outcome.why = ERROR, f"{type(error).__name__}: {error}"
        return outcome
    done = subprocess.run(check_command(program, drawn, folder, oracle), capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        outcome.kind, outcome.why = ERROR, f"check ended with {done.returncode}: {done.stderr.strip()}"
        return outcome
    item = json.loads(done.stdout)["cases"][0]
    outcome.kind = {0: PASS, 1: ALARM, 3: REFUSED}[done.returncode]
    if item["error"]:
        outcome.why = f"{item['error']['code']}: {item['error']['message']}"
    return judged(outcome, item)


def in_worker(task: tuple[Path, int, Path | None]) -> Outcome:
    program, seed, keep = task
    if keep is not None:
        folder = keep / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        return one_run(program, seed, folder)
    with tempfile.TemporaryDirectory() as folder:
        return one_run(program, seed, Path(folder))


def set_up_worker() -> None:
    generate.torch.set_num_threads(1)  # the models are small


class Tally:
    """What all runs said together."""

    def __init__(self) -> None:
        self.kinds, self.reasons, self.stages = Counter(), Counter(), 0
        self.least: list[tuple[float, str, int]] = []
        self.fullest = (0.0, "", 0)

    def take(self, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        self.stages += outcome.stages
        if outcome.kind == NO_ORACLE:
            self.reasons[re.sub(r"[0-9][-+.0-9e]*", "N", re.sub(r"^\S*/\S*: ", "", outcome.why))[:100]] += 1
        if outcome.kind not in (PASS, ALARM):
            return
        self.least = heapq.nsmallest(LEAST, [*self.least, (*outcome.least, outcome.seed)])
        self.fullest = max(self.fullest, (*outcome.fullest, outcome.seed))

    def summary(self, seconds: float) -> str:
        kinds = self.kinds
        judged_runs = kinds[PASS] + kinds[ALARM] + kinds[REFUSED]
        return (
            f"{judged_runs} drafters judged in {seconds:.0f} s: {kinds[PASS]} passed, {kinds[ALARM]} alarms, "
            f"{kinds[REFUSED]} refusals; {self.stages} stages; {kinds[NO_ORACLE]} without an oracle, {kinds[ERROR]} "
            "runs that could not be made"
        )

    def exit_code(self) -> int:
        if self.kinds[ALARM] + self.kinds[REFUSED]:
            return 1
        if self.kinds[ERROR]:
            return 4
        return 0 if self.kinds[PASS] else 5


def report(outcome: Outcome) -> None:
    """A line for what is not a pass, and the command that makes it again."""
    if outcome.kind in (PASS, NO_ORACLE):
        return
    why = " ".join(filter(None, (outcome.why, ", ".join(outcome.failed[:4]))))
    print(f"{outcome.kind.upper()} of seed {outcome.seed}: {outcome.words}: {why}")
    print(f"  python oracles/soak_geometries.py --seed {outcome.seed} --runs 1 --keep alarm", flush=True)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak_geometries.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", type=Path, default=generate.ROOT / "build" / "dflash-parity")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others follow")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of every run in DIR/SEED")
    options = parser.parse_args(argv)
    if options.runs < 1 or options.jobs < 1 or options.seed < 0:
        parser.error("--runs and --jobs must be at least 1, --seed at least 0")
    return options


def main(argv: list[str]) -> int:
    options = parse(argv)
    program = options.program.resolve()
    if not program.is_file():
        print(f"soak_geometries.py: {program} is not there; `make build` makes it.", file=sys.stderr)
        return 4
    tasks = [(program, seed, options.keep) for seed in range(options.seed, options.seed + options.runs)]
    tally, began, shown = Tally(), time.monotonic(), sys.stderr.isatty()
    # spawned, not forked: torch's threads do not survive a fork
    with multiprocessing.get_context("spawn").Pool(options.jobs, initializer=set_up_worker) as pool:
        for done, outcome in enumerate(pool.imap(in_worker, tasks), 1):
            tally.take(outcome)
            report(outcome)
            if shown:
                print(f"\r{done} of {options.runs}", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)
    for reason, count in tally.reasons.most_common():
        print(f"no oracle, {count} x: {reason}")
    for headroom, stage, seed in tally.least:
        print(f"headroom {headroom:.1%} at {stage}, seed {seed}")
    share, stage, seed = tally.fullest
    print(f"fullest isolated bound: {share:.1%} at {stage}, seed {seed}")
    print(tally.summary(time.monotonic() - began))
    return tally.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
