#!/usr/bin/env python3
"""Self-tests of positions with gaps: what they are, what masks they give, and that an oracle of them is right.

Run with the interpreter that runs generate.py: python oracles/test_spacing.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import unittest
from pathlib import Path

import dflash.model as upstream
import numpy as np
import torch
from safetensors.torch import load_file

import reference
from cases import check_case, read_cases
from inputs import make_inputs
from refusal import Refused
from rope import rotary_dim
from runner import Runner
from spacing import has_gaps, masks_by_position, parse_gaps, spaced_positions
from test_oracles import OracleTest, read_oracle
from test_support import recompute
from weights import Tensors

GAPS = "5:40,9:3,20:16,24:2"
ROOT = Path(__file__).resolve().parent.parent


class ThePositions(unittest.TestCase):
    def test_a_gap_moves_the_rows_before_it(self):
        self.assertEqual(spaced_positions(4, 100, 2, [[1, 10], [4, 5]]).tolist(), [81, 92, 93, 94, 100, 101])
        self.assertEqual(spaced_positions(3, 3, 2, []).tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(spaced_positions(1, 7, 1, [[1, 6]]).tolist(), [0, 7])

    def test_a_gap_in_the_block_or_before_position_zero_is_refused(self):
        with self.assertRaisesRegex(Refused, "row 5: expected a row of the context, 1 to 4"):
            spaced_positions(4, 100, 2, [[5, 1]])
        with self.assertRaisesRegex(Refused, "need a start of 14"):
            spaced_positions(4, 13, 2, [[2, 10]])
        with self.assertRaisesRegex(Refused, f"need a start of {10**20 + 4}"):
            spaced_positions(4, 13, 2, [[2, 10**20]])

    def test_words_that_are_no_gaps_are_refused(self):
        for text in ("", "3", "3:x", "3:4:5", "3:0", "0:3", "4:1,3:1", "3:1,3:2"):
            with self.subTest(text=text), self.assertRaisesRegex(Refused, "gaps"):
                generate.check_gaps(parse_gaps(text), "--gaps")

    def test_a_case_may_have_them_and_no_others(self):
        case = read_cases(ROOT / "fixtures/cases.json", "tiny-gaps")[0]
        check_case(case, Path("list"))
        for wrong in ("3:1", [[3]], [[3, -1]], [[3, 1.0]], [[True, 1]]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(Refused, "tiny-gaps: gaps is"):
                check_case({**case, "gaps": wrong}, Path("list"))


class TheMasks(unittest.TestCase):
    def test_they_are_those_of_the_distances(self):
        positions = spaced_positions(24, 1000, 5, parse_gaps(GAPS))
        for window in (None, 1, 4, 16, 41, 60):
            for causal in (False, True):
                for keys, rows in ((29, 5), (13, 5), (29, 29)):
                    q, k = (torch.empty(1, 1, n, 1, dtype=torch.bool) for n in (rows, keys))
                    with self.subTest(window=window, causal=causal, keys=keys), masks_by_position(positions):
                        mask = upstream._attention_mask(q, k, is_causal=causal, sliding_window=window)
                    back = positions[keys - rows : keys, None] - positions[None, :keys]
                    expected = (back >= 0) if causal else torch.ones_like(back, dtype=torch.bool)
                    if window is not None:
                        expected &= (back < window) & ((back > -window) | causal)
                    self.assertTrue(torch.equal(mask[0, 0], expected))

    def test_without_gaps_upstream_is_left_as_it_is(self):
        positions = spaced_positions(24, 1000, 5, [])
        self.assertFalse(has_gaps(positions))
        before = upstream._attention_mask
        with masks_by_position(positions):
            self.assertIs(upstream._attention_mask, before)


class TheOracles(OracleTest):
    def test_every_stage_follows_from_the_one_before_where_positions_have_gaps(self):
        for name, more in (("windowed", {}), ("causal", {}), ("conv-2", {"lm_head": True}), ("yarn", {})):
            directory = self.checkpoint(name, **more)
            code, said = self.generate(directory, "--gaps", GAPS)
            self.assertEqual(code, 0, said)
            geometry, provenance, inputs, stages = read_oracle(self.folder / "out.h5")
            self.assertIn(f"--gaps {GAPS}", provenance["command"])
            self.assertTrue(any("positions have gaps" in note for note in provenance["adapters"]))
            self.assertEqual(sorted(set(np.diff(inputs["positions"]))), [1, 3, 4, 17, 41])
            weights = {key: value.double().numpy() for key, value in load_file(directory / "model.safetensors").items()}
            truth = dict(stages["float64"], table=stages["float32"]["rope.inv_freq"])
            for stage, value in recompute(geometry, weights, inputs, truth).items():
                with self.subTest(name=name, stage=stage):
                    np.testing.assert_allclose(truth[stage], value, rtol=1e-9, atol=1e-12)

    def test_the_reference_without_context_gives_what_it_gives_when_none_is_in_sight(self):
        case = read_cases(ROOT / "fixtures/cases.json", "tiny-alone")[0]
        directory = ROOT / case["checkpoint"]
        checkpoint = reference.open_checkpoint(directory)
        model = reference.build(checkpoint, Tensors.scan(directory), torch.float64)
        made = make_inputs(
            seed=case["input_seed"], profile=case["input_profile"], context=1, start=case["start"],
            block=int(checkpoint.value("block_size")), taps=len(checkpoint.value("target_layer_ids")),
            hidden=checkpoint.config.hidden_size, embedding_scale=1.0, gaps=case["gaps"],
        )  # fmt: skip
        runner = Runner(model, made, torch.float64, rotary_dim(checkpoint.config))
        runner.target_hidden, runner.positions, runner.context = runner.target_hidden[:, :0], runner.positions[:, 1:], 0
        with runner.arithmetic():
            final = runner.forward()[0]
        stored = read_oracle(ROOT / case["oracle"])[3]["float64"]["final"]
        np.testing.assert_allclose(final.numpy(), stored, rtol=1e-12)


if __name__ == "__main__":
    unittest.main()
