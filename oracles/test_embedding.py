#!/usr/bin/env python3
"""Self-tests of the stage `input`: ids, scale and mask of the block as the target's table gives them.

Run with the interpreter that runs generate.py: python oracles/test_embedding.py
"""

from __future__ import annotations

import generate  # noqa: F401  first: it settles how torch is imported

import unittest

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from test_oracles import OracleTest, read_oracle
from test_support import make_checkpoint, recompute

CHECKPOINTS = {
    "scaled": {"input_embedding_scale": 0.3},
    "head": {"lm_head": True, "input_embedding_scale": 7.5, "dtype": torch.float16},
    "dspark": {"lm_head": True, "markov": "vanilla"},
    "dflash2": {"lm_head": True, "kernel": 2, "input_embedding_scale": 1.7},
}


class TheInput(OracleTest):
    def made(self, name: str, **changes):
        checkpoint = make_checkpoint(self.folder / name, **{"embedding": True, **CHECKPOINTS[name], **changes})
        code, said = self.generate(checkpoint, context=40)
        self.assertEqual(code, 0, said)
        weights = {key: tensor.double().numpy() for key, tensor in load_file(checkpoint / "model.safetensors").items()}
        return weights, *read_oracle(self.folder / "out.h5")

    def test_every_run_starts_from_its_own_scaled_rows(self):
        for name, settings in CHECKPOINTS.items():
            weights, geometry, provenance, inputs, stages = self.made(name)
            with self.subTest(name=name):
                scale, ids = settings.get("input_embedding_scale", 1.0), inputs["block_ids"]
                self.assertEqual(geometry["input_embedding_scale"], scale)
                self.assertEqual(ids[1:].tolist(), [200] * 4)
                self.assertNotEqual(ids[0], 200)
                if "anchor" in inputs:
                    self.assertEqual(ids[0], inputs["anchor"][0])
                rows = weights["embed_tokens.weight"][ids]
                np.testing.assert_array_equal(stages["float64"]["input"], rows * scale)
                single = rows.astype(np.float32) * np.float32(scale)
                np.testing.assert_array_equal(stages["float32"]["input"], single)
                np.testing.assert_array_equal(inputs["noise_embedding"], single)
                half = (torch.from_numpy(rows).to(torch.bfloat16) * scale).double().numpy()
                np.testing.assert_array_equal(stages["bfloat16"]["input"], half)
                self.assertEqual(provenance["embedding"]["tensor"], "embed_tokens.weight")
                self.assertEqual(provenance["embedding"]["shape"], [256, 64])
                self.assertNotIn("embed_tokens.weight", provenance["tensors"])

    def test_layer_0_follows_from_it(self):
        weights, geometry, _, inputs, stages = self.made("scaled")
        truth = {**stages["float64"], "table": stages["float32"]["rope.inv_freq"]}
        again = recompute(geometry, weights, inputs, truth)
        self.assertEqual(set(again) | {"rope.inv_freq"}, set(stages["float64"]))
        for stage in ("input", "layers.0.attn.norm", "layers.0.attn.residual"):
            self.assertLess(np.abs(again[stage] - truth[stage]).max() / np.abs(truth[stage]).max(), 1e-14, stage)

    def test_without_a_table_there_is_no_such_stage(self):
        _, _, provenance, inputs, stages = self.made("scaled", embedding=False)
        self.assertNotIn("input", stages["float64"])
        self.assertNotIn("block_ids", inputs)
        self.assertNotIn("embedding", provenance)

    def test_the_anchor_is_in_the_table_where_the_config_has_no_vocabulary(self):
        _, geometry, provenance, inputs, _ = self.made("scaled", vocab_size=None)
        self.assertEqual(geometry["vocab_size"], 0)
        self.assertLess(inputs["block_ids"].max(), provenance["embedding"]["shape"][0])

    def test_a_table_that_does_not_fit_is_refused(self):
        checkpoint = make_checkpoint(self.folder / "wide", embedding=True)
        tensors = load_file(checkpoint / "model.safetensors")
        table = tensors["embed_tokens.weight"]
        for wrong, phrase in ((table[:, :32], "hidden_size 64 columns"), (table[:150], "mask_token_id 200 is outside"),
                              (table[:, 0], "float32[256]" if table.dtype == torch.float32 else "bfloat16[256]")):  # fmt: skip
            save_file({**tensors, "embed_tokens.weight": wrong.clone()}, checkpoint / "model.safetensors")
            self.refused(checkpoint, phrase)


if __name__ == "__main__":
    unittest.main()
