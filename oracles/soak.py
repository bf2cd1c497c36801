#!/usr/bin/env python3
"""Looks for false alarms: fresh oracles of the small checkpoints, each judged by `dflash-parity check`.

Every run takes the next case of the case list with other inputs: another seed, context, position and profile. The
reference computes its oracle (generate.py) into a temporary folder and the program is held against it, chained,
isolated and round by round. Anything but a pass is printed with the command that makes it again.

Exit codes: 0 no alarm, 1 an alarm, 2 usage, 4 a run that could not be made, 5 nothing was run.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import generate
from cases import read_cases
from lift import LiftError
from refusal import Refused

LONGEST_CONTEXT = 96  # rows: several windows of every small checkpoint
FURTHEST_START = 100_000
ROUNDING = 2.0**-24  # of float32, relative to the value; a spread below it is raised to it (envelope.h)


def draw(case: dict, seed: int) -> dict:
    """The inputs of one run; a function of the case's name and the seed alone."""
    rng = random.Random(f"{case['name']} {seed}")
    context = rng.randint(1, LONGEST_CONTEXT)
    return {
        "context": context,
        "start": rng.choice([context, rng.randint(context, 4096), rng.randint(context, FURTHEST_START)]),
        "seed": seed,
        "profile": rng.choice(sorted(generate.PROFILES)),
    }


def check_command(program: Path, case: dict, oracle: Path) -> list[str]:
    command = [str(program), "check", "--checkpoint", case["checkpoint"], "--oracle", str(oracle), "--json"]
    if "precision" in case:
        command += ["--precision", case["precision"]]
    return command


def remake(case: dict, inputs: dict) -> str:
    """The command that writes this run's oracle again."""
    command = ["python", "oracles/generate.py", "--checkpoint", case["checkpoint"], "--out", "alarm.h5"]
    for option, value in inputs.items():
        command += [f"--{option}", str(value)]
    if "precision" in case:
        command += ["--precision", case["precision"]]
    return shlex.join(command)


class Tally:
    def __init__(self) -> None:
        self.runs = self.alarms = self.refused = self.stages = self.isolated = 0
        self.least = (1.0, "", "")
        self.largest = {"rel_l2": (0.0, "", ""), "max_rel_rms": (0.0, "", "")}  # error over reference spread

    def take(self, case: dict, result: dict) -> None:
        self.runs += 1
        for stage in result["cases"][0]["stages"]:
            self.stages += 1
            self.isolated += stage["isolated"] is not None
            headroom = stage.get("headroom")
            if isinstance(headroom, (int, float)) and headroom < self.least[0]:
                self.least = (headroom, stage["name"], case["name"])
            for measure, largest in self.largest.items():
                ratio = self.over_bracket(stage, measure)
                if ratio > largest[0]:
                    self.largest[measure] = (ratio, stage["name"], case["name"])

    @staticmethod
    def over_bracket(stage: dict, measure: str) -> float:
        """How many times the basis of its limit an error is; 0 where that is one rounding and not the spread."""
        error, spread = stage["chained"].get(measure), (stage["bar"] or {}).get(f"bracket_{measure}")
        if not isinstance(error, (int, float)) or not isinstance(spread, (int, float)) or spread < ROUNDING:
            return 0.0
        return error / spread


def one_run(program: Path, case: dict, seed: int, folder: Path, tally: Tally) -> None:
    inputs, oracle = draw(case, seed), folder / "run.h5"
    try:
        generate.generate(
            generate.ROOT / case["checkpoint"], oracle, context=inputs["context"], start=inputs["start"],
            seed=seed, stride=1, profile=inputs["profile"], precision=case.get("precision", "stored"),
            full_stages=None, table=False, log=lambda line: None,
        )  # fmt: skip
    except Refused as error:  # the reference cannot judge these inputs: no verdict, and no pass
        tally.refused += 1
        print(f"no oracle for {case['name']}, {inputs}: {error}", flush=True)
        return
    done = subprocess.run(check_command(program, case, oracle), capture_output=True, text=True, cwd=generate.ROOT)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"check ended with {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    tally.take(case, result)
    if done.returncode != 0:
        tally.alarms += 1
        item = result["cases"][0]
        error = item.get("error") or {}
        failed = [
            stage["name"]
            for stage in item["stages"]
            if not stage["pass"] or (stage["isolated"] and not stage["isolated"]["pass"])
        ]
        print(f"ALARM {case['name']}, {inputs}: {result['verdict']} {error.get('message', '')} {' '.join(failed[:4])}")
        print(f"  {remake(case, inputs)}", flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", type=Path, default=generate.ROOT / "build" / "dflash-parity")
    parser.add_argument("--cases", type=Path, default=generate.ROOT / "fixtures" / "cases.json")
    parser.add_argument("--only", default="tiny-*", metavar="GLOB", help="cases to take in turn (default tiny-*)")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others follow")
    options = parser.parse_args(argv)
    program = options.program.resolve()
    cases = read_cases(options.cases, options.only)
    if not cases or options.runs < 1:
        print(f"soak.py: nothing to run: {len(cases)} cases, {options.runs} runs", file=sys.stderr)
        return 5
    generate.torch.set_num_threads(1)  # the models are small
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for run in range(options.runs):
            case, seed = cases[run % len(cases)], options.seed + run
            try:
                one_run(program, case, seed, Path(folder), tally)
            except (LiftError, OSError, RuntimeError, MemoryError, KeyError, ValueError) as error:
                print(f"soak.py: {case['name']}, seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
                return 4
    headroom, stage, name = tally.least
    print(
        f"{tally.runs} runs over {len(cases)} cases in {time.monotonic() - began:.0f} s: {tally.alarms} alarms; "
        f"{tally.stages} stages chained, {tally.isolated} isolated; {tally.refused} inputs without an oracle; "
        f"least headroom {headroom:.0%} at {stage} of {name}"
    )
    for measure, (ratio, stage, name) in tally.largest.items():
        print(f"largest {measure} over the reference's float32 spread: {ratio:.2f} at {stage} of {name}")
    return 1 if tally.alarms else 0 if tally.runs else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
