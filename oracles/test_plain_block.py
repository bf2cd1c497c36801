#!/usr/bin/env python3
"""The model that is timed computes what a drafter computes: its float64 run against stored oracles.

Run with the interpreter that runs generate.py: python oracles/test_plain_block.py
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch

import time_plain
from plain_block import PlainBlock, Shape
from refusal import Refused

ROOT = Path(__file__).resolve().parent.parent
CASES = {"tiny-plain": "tiny-plain", "tiny-windowed": "tiny-windowed", "tiny-causal": "tiny-causal",
         "tiny-bias": "tiny-bias", "tiny-edge": "tiny-edge", "tiny-dflash2": "tiny-dflash2",
         "tiny-dflash2-far": "tiny-dflash2"}  # fmt: skip


def values(dataset: h5py.Dataset) -> torch.Tensor:
    found = np.array(dataset)
    if dataset.attrs["logical_dtype"] == b"bfloat16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return torch.from_numpy(found)


def distance(case: str, change=lambda model: None) -> float:
    """Relative L2 between the plain model's last stage in float64 and the oracle's."""
    with h5py.File(ROOT / "oracles" / f"{case}.h5") as oracle:
        taps, noise, positions = (
            values(oracle[f"inputs/{name}"])
            for name in ("target_hidden", "noise_embedding", "positions")
        )
        truth = oracle["stages/float64/final"]
        stride, expected = int(truth.attrs.get("sample_stride", 1)), np.array(truth)
        offset = int(truth.attrs.get("sample_offset", 0))
    with torch.no_grad():
        model = PlainBlock(ROOT / "fixtures/small" / CASES[case], positions, torch.float64, "cpu")
        change(model)
        model.ingest(model.features(taps.double()))
        model(noise.double())  # a second round overwrites what the first left in the cache
        found = model(noise.double()).numpy().reshape(-1)[offset::stride]
    return float(np.linalg.norm(found - expected.reshape(-1)) / np.linalg.norm(expected))


class PlainBlockTest(unittest.TestCase):
    def test_it_agrees_with_the_oracles(self):
        for case in CASES:
            with self.subTest(case=case):
                self.assertLess(distance(case), 1e-6)  # what single roundings of the rotary table make

    def test_another_model_does_not_agree(self):
        def scale_one_norm(model):
            model.layers[1].k_norm *= 1.01

        def drop_the_masks(model):
            model.masks = [None] * len(model.masks)

        self.assertGreater(distance("tiny-plain", scale_one_norm), 1e-3)
        self.assertGreater(distance("tiny-causal", drop_the_masks), 1e-3)
        self.assertGreater(distance("tiny-windowed", drop_the_masks), 1e-3)

    def test_what_it_has_no_code_for_is_refused(self):
        for case, word in (("tiny-yarn", "rotation"), ("tiny-partial", "rotation"), ("tiny-dflash2-k3", "rotation"),
                           ("tiny-dspark", "architecture")):
            with self.subTest(case=case), self.assertRaisesRegex(Refused, word):
                Shape(ROOT / "fixtures/small" / case)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(Refused, "config of a checkpoint"):
                Shape(Path(folder))
            shutil.copy(ROOT / "fixtures/small/tiny-plain/config.json", folder)
            with self.assertRaisesRegex(Refused, "weights of the checkpoint"):
                PlainBlock(Path(folder), torch.arange(40), torch.float32, "cpu")


class TimePlainTest(unittest.TestCase):
    def run_main(self, device: str) -> tuple[int, str, str]:
        words = ["time_plain.py", "--checkpoint", str(ROOT / "fixtures/small/tiny-dflash2"), "--device", device,
                 "--context", "32", "--threads", "1", "--repeat", "2"]  # fmt: skip
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("sys.argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = time_plain.main()
        return code, out.getvalue(), err.getvalue()

    def test_it_prints_times_and_what_is_lacking(self):
        code, out, _ = self.run_main("cpu")
        result = json.loads(out)
        self.assertEqual(code, 0)
        self.assertGreater(result["eager_ms"], 0)
        self.assertIsNone(result["graph_ms"])
        self.assertIsNone(result["compiled_ms"])
        self.assertEqual(result["why"], "graphs need a GPU")

    def test_a_device_that_is_not_there_is_refused(self):
        with mock.patch("torch.cuda.is_available", return_value=False):
            code, out, err = self.run_main("cuda")
        self.assertEqual((code, out), (3, ""))
        self.assertIn("no CUDA device", err)


if __name__ == "__main__":
    unittest.main()
