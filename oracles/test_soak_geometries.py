#!/usr/bin/env python3
"""Self-tests of the preflight's limits: correct oracles that an earlier rule refused pass.

Run with the interpreter that runs generate.py, after `make build`: python oracles/test_soak_geometries.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import unittest

import soak_geometries

SEEDS = {
    2212: "errors of rows that are small, in a hot model",
    2245: "a sketch of such a row, a block of three rows",
    7034: "one sample in a row, which is not its largest value",
    30002: "a model that amplifies, so that few rows decide",
    30057: "the middle of the largest errors of six stages, all of one residual",
    31274: "a bfloat16 run whose largest errors are not sampled",
    31365: "a sum that cancels, in the own run as in the others",
    40042: "a convolution's kernels of equal mask tokens",
}


@unittest.skipUnless((generate.ROOT / "build" / "dflash-parity").is_file(), "make build")
class Soak(unittest.TestCase):
    def test_correct_oracles_that_were_refused_once_pass(self):
        for seed, what in SEEDS.items():
            with self.subTest(seed=seed, what=what):
                self.assertEqual(soak_geometries.main(["--runs", "1", "--seed", str(seed)]), 0)


if __name__ == "__main__":
    unittest.main()
