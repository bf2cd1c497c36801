#!/usr/bin/env python3
"""Self-tests of the generator's inputs and of its command line: usage, filters, refusals, the recorded command.

Run with the interpreter that runs generate.py: python oracles/test_command.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import json
import shlex
import unittest

import torch

from inputs import make_inputs
from test_oracles import OracleTest, read_oracle, run


class TheInputs(unittest.TestCase):
    def make(self, **changes):
        return make_inputs(**{"seed": 5, "profile": "unit", "context": 24, "start": 1000, "block": 5, "hidden": 512,
                              "taps": 3, "embedding_scale": 1.0, **changes})  # fmt: skip

    def test_they_depend_on_the_seed_alone(self):
        self.assertTrue(torch.equal(self.make().target_hidden, self.make().target_hidden))
        self.assertFalse(torch.equal(self.make().target_hidden, self.make(seed=6).target_hidden))

    def test_the_block_is_an_anchor_and_equal_mask_rows(self):
        noise = self.make().noise_embedding
        self.assertTrue(all(torch.equal(noise[1], row) for row in noise[2:]))
        self.assertFalse(torch.equal(noise[0], noise[1]))

    def test_positions_run_through_context_and_block(self):
        self.assertEqual(self.make().positions.tolist(), list(range(976, 1005)))

    def test_profiles_have_the_sizes_of_real_hidden_states(self):
        for profile, low, high, peak in (("unit", 0.5, 4.0, 10.0), ("hot", 20.0, 200.0, 1000.0)):
            states = self.make(profile=profile).target_hidden.float()
            with self.subTest(profile=profile):
                self.assertTrue(low < states.pow(2).mean().sqrt().item() < high)
                self.assertGreater(states.abs().max().item(), peak)
                self.assertLess(states.abs().max().item(), 12 * peak)


class TheCommand(OracleTest):
    def test_usage_errors_exit_with_2(self):
        for arguments in (
            [],
            ["--checkpoint", "x"],
            ["--cases", "x", "--seed", "1"],
            ["--cases", "x", "--checkpoint", "y"],
            ["--cases", "x", "--gaps", ""],
        ):
            self.assertEqual(run(*arguments)[0], 2)

    def test_a_filter_that_matches_nothing_exits_with_5(self):
        (self.folder / "cases.json").write_text('{"schema": 1, "cases": []}')
        code, said = run("--cases", self.folder / "cases.json", "--only", "x*")
        self.assertEqual(code, 5)
        self.assertIn("nothing was generated", said)

    def test_a_malformed_case_is_refused(self):
        (self.folder / "cases.json").write_text('{"schema": 1, "cases": [{"name": "a", "checkpoint": 3}]}')
        code, said = run("--cases", self.folder / "cases.json")
        self.assertEqual(code, 3)
        self.assertIn("checkpoint is 3, expected str", said)
        case = {"name": "a", "checkpoint": "a", "oracle": "a.h5", "context": 4, "start": 9, "input_seed": 1,
                "input_profile": "unit", "sample_stride": 1, "lm_head": True}  # fmt: skip
        (self.folder / "cases.json").write_text(json.dumps({"schema": 1, "cases": [case]}))
        code, said = run("--cases", self.folder / "cases.json")
        self.assertEqual(code, 3)
        self.assertIn("lm_head is True, expected FILE or FILE:TENSOR", said)

    def test_a_block_that_starts_inside_its_context_is_refused(self):
        code, said = run("--checkpoint", self.checkpoint("plain"), "--out", self.folder / "o.h5", "--context", 24,
                         "--start", 23, "--seed", 1)  # fmt: skip
        self.assertEqual(code, 3)
        self.assertIn("start >= context", said)

    def test_a_request_that_no_record_could_state_is_refused(self):
        checkpoint = self.checkpoint("plain")
        for more, reason in ((("--seed", 1 << 63), "seed from 0 to"), (("--gaps", ""), "gaps '': expected ROW:SKIPPED")):
            code, said = self.generate(checkpoint, *more)
            self.assertEqual(code, 3, said)
            self.assertIn(reason, said)

    def test_the_recorded_command_asks_for_the_same_again(self):
        code, said = self.generate(self.checkpoint("plain"), "--sample-stride", 7, "--full-stages", "")
        self.assertEqual(code, 0, said)
        _, provenance, _, _ = read_oracle(self.folder / "out.h5")
        self.assertEqual(provenance["request"]["full_stages"], [])
        options = generate.parse(shlex.split(provenance["command"])[1:])
        self.assertEqual(options.full_stages, [])


if __name__ == "__main__":
    unittest.main()
