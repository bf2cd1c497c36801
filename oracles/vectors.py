#!/usr/bin/env python3
"""Writes oracles/vectors.h5: isolated inputs and results of the small parts, and the tables of YaRN.

What the groups hold is in FORMAT.md, the cases are in yarn_cases.py, vector_heads.py, vector_sampling.py and
vector_verify.py. The YaRN tables come from
transformers' own function in both of its generations; the older one is given as a folder of installed packages.

Exit codes: 0 done, 2 usage, 3 refused, 4 runtime error.
"""

from __future__ import annotations

import os

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # see generate.py

import argparse
import copy
import json
import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

import packages
import vector_heads
import vector_sampling
import vector_verify
from h5out import oracle_file
from lift import Float64Factories, LiftError
from refusal import Refused
from yarn_cases import CASES

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).resolve().with_name("yarn_tables.py")
SMALL = ROOT / "fixtures" / "small"
PACKAGES = ("torch", "transformers", "dflash", "specforge", "h5py", "numpy")


def tables_of(folder: Path | None) -> dict:
    """What yarn_tables.py says with the packages of `folder` before those of this interpreter."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    done = subprocess.run([sys.executable, str(SCRIPT)], input=json.dumps(list(CASES.values())), env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{SCRIPT.name} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def float64_yarn(settings: dict) -> torch.Tensor:
    with Float64Factories():  # the config writes into the objects that it is given
        return ROPE_INIT_FUNCTIONS["yarn"](Qwen3Config(**copy.deepcopy(settings)), "cpu")[0]


def yarn_groups(old: dict, new: dict):
    """A group for each case; the generations must agree in every bit wherever both have an answer."""
    for (name, settings), then, now in zip(CASES.items(), old["tables"], new["tables"], strict=True):
        if "error" in now:
            raise Refused(f"yarn case {name}: transformers {new['version']} says {now['error']}")
        if "error" not in then and then != now:
            raise Refused(f"yarn case {name}: transformers {old['version']} and {new['version']} make different tables.")
        table = torch.from_numpy(np.array(now["bits"], dtype="<u4").view("<f4"))
        said = {"version": old["version"]} | ({"error": then["error"]} if "error" in then else {"same_bits": True})
        params = {"config": settings, "transformers": {"version": new["version"]}, "transformers_4": said}
        yield f"yarn/{name}", params, {
            "inv_freq": table, "inv_freq_float64": float64_yarn(settings),
            "attention_factor": torch.tensor([now["attention_factor"]], dtype=torch.float64),
        }  # fmt: skip


def write(out: Path, transformers4: Path, log) -> None:
    old, new = tables_of(transformers4), tables_of(None)
    if not old["version"].startswith("4.") or not new["version"].startswith("5."):
        raise Refused(
            f"the two generations of transformers are {old['version']} and {new['version']}, expected 4.x from "
            "--transformers4 and 5.x from this interpreter. Install oracles/requirements-transformers4.txt there."
        )
    names = ("dflash.model", "specforge.modeling.draft.dspark", "transformers.modeling_rope_utils")
    packages.specforge_dspark()
    provenance = {
        "generator": "oracles/vectors.py",
        "command": shlex.join(["oracles/vectors.py", "--out", out.name, "--transformers4", "DIR"]),
        "packages": {"hdf5": h5py.version.hdf5_version, **{name: packages.version(name) for name in PACKAGES}},
        "references": [packages.source_record(sys.modules[name]) for name in names],
    }
    count = 0
    with oracle_file(out, "vectors") as writer:
        writer.document("provenance", provenance)
        for source in (yarn_groups(old, new), vector_heads.cases(SMALL), vector_sampling.cases(SMALL),
                       vector_verify.cases()):  # fmt: skip
            for name, params, datasets in source:
                writer.group(name, params)
                for label, tensor in datasets.items():
                    writer.tensor(f"{name}/{label}", tensor)
                log(f"{name}: seed {params.get('seed', '-')}")
                count += 1
    log(f"{out}: {count} groups, {out.stat().st_size} bytes")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="vectors.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, metavar="FILE", default=ROOT / "oracles" / "vectors.h5")
    parser.add_argument("--transformers4", type=Path, metavar="DIR", required=True,
                        help="folder with the packages of requirements-transformers4.txt")  # fmt: skip
    options = parser.parse_args(argv)

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    transformers.logging.set_verbosity_error()  # it warns of factors that the cases choose on purpose
    try:
        torch.set_num_threads(2)
        write(options.out, options.transformers4, log)
    except Refused as error:
        log(f"vectors.py: refused: {error}")
        return 3
    except (LiftError, OSError, RuntimeError, MemoryError) as error:
        log(f"vectors.py: {type(error).__name__}: {error}")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
