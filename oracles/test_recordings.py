#!/usr/bin/env python3
"""Self-tests of record_example.py: what it writes, `dflash-parity compare` reads and judges.

Run after `make build`, with the interpreter that runs generate.py: python oracles/test_recordings.py
DFLASH_PARITY names another program than build/dflash-parity.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import record_example

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("DFLASH_PARITY", str(ROOT / "build" / "dflash-parity"))


class Recordings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_file = Path(folder.name) / "run.h5"

    def compare(self, oracle: Path) -> tuple[int, dict]:
        done = subprocess.run(
            [PROGRAM, "compare", str(oracle), str(self.run_file), "--json"], capture_output=True, text=True, check=False
        )
        return done.returncode, json.loads(done.stdout)

    def test_the_references_float32_run_is_a_recording_that_passes(self):
        for case in ("tiny-plain", "tiny-dflash2", "tiny-dspark-rnn"):
            oracle = ROOT / "oracles" / f"{case}.h5"
            record_example.from_oracle(oracle, self.run_file)
            code, result = self.compare(oracle)
            self.assertEqual((code, result["verdict"]), (0, "PASS"), case)
            self.assertEqual(result["stages_compared"], result["stages_known"])
            self.assertEqual(result["b"]["engine"]["name"], "torch")

    def test_one_wrong_value_fails_at_its_stage(self):
        oracle = ROOT / "oracles" / "tiny-plain.h5"
        record_example.from_oracle(oracle, self.run_file)
        with h5py.File(self.run_file, "r") as file:
            records = [json.loads(file[name][()]) for name in ("geometry", "provenance")]
            inputs = {name: dataset[()] for name, dataset in file["inputs"].items()}
            stages = {name: dataset[()] for name, dataset in file["stages/run"].items()}
        stages["layers.1.attn.v"][3, 7] += np.float32(0.01)
        record_example.write_recording(self.run_file, *records, inputs, stages)
        code, result = self.compare(oracle)
        self.assertEqual((code, result["first_divergent"]), (1, "layers.1.attn.v"))

    def test_an_oracle_of_samples_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "holds samples"):
            record_example.from_oracle(ROOT / "oracles" / "tiny-windowed24.h5", self.run_file)
        self.assertFalse(self.run_file.exists())


if __name__ == "__main__":
    unittest.main()
