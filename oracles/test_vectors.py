#!/usr/bin/env python3
"""Self-tests of the isolated vectors: each computed again in numpy, and the generations of transformers compared.

Run with the interpreter that runs generate.py: python oracles/test_vectors.py
"""

from __future__ import annotations

import generate  # noqa: F401  first: it settles how torch is imported

import json
import math
import tempfile
import unittest
from copy import deepcopy
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
from safetensors.torch import load_file

import vector_heads
import vectors
from h5out import oracle_file
from refusal import Refused
from test_support import convolve
from yarn_cases import CASES


def yarn(settings: dict) -> np.ndarray:
    """The formula in float64, by the description alone."""
    rope = settings.get("rope_parameters") or {**settings["rope_scaling"], "rope_theta": settings["rope_theta"]}
    dim = int(settings["head_dim"] * settings.get("partial_rotary_factor", 1.0))
    longest, theta = settings["max_position_embeddings"], rope["rope_theta"]
    original = rope.get("original_max_position_embeddings") or longest
    factor = rope["factor"] or longest / original

    def dimension(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    index = np.arange(dim // 2)
    ramp = np.clip((index - low) / (high - low or 0.001), 0, 1)
    plain = theta ** (-2 * index / dim)
    return plain / factor * ramp + plain * (1 - ramp)


class TheVectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.new = vectors.tables_of(None)
        cls.old = {**cls.new, "version": "4.0"}

    def test_yarn_tables_follow_the_formula(self):
        self.assertGreaterEqual(len(CASES), 12)
        before = deepcopy(CASES)
        for name, params, datasets in vectors.yarn_groups(self.old, self.new):
            with self.subTest(name=name):
                # upstream's config class writes into the objects that it is given
                self.assertEqual(params["config"], before[name.removeprefix("yarn/")])
                expected = yarn(params["config"])
                np.testing.assert_allclose(datasets["inv_freq_float64"].numpy(), expected, rtol=1e-12)
                np.testing.assert_allclose(datasets["inv_freq"].numpy(), expected, rtol=5e-6)

    def test_generations_that_differ_in_one_bit_are_refused(self):
        other = json.loads(json.dumps(self.old))
        other["tables"][3]["bits"][5] ^= 1
        with self.assertRaisesRegex(Refused, "make different tables"):
            list(vectors.yarn_groups(other, self.new))

    def test_a_generation_that_is_not_the_older_one_is_refused(self):
        with mock.patch.object(vectors, "tables_of", lambda folder: self.new), self.assertRaisesRegex(Refused, "4.x from"):
            vectors.write(Path("unused.h5"), Path("."), print)

    def test_a_chain_without_its_predecessor_is_no_case(self):
        depends = vector_heads.depends_on_predecessor
        after = {0: {7: 1}, 1: {1: 2}}  # slot to predecessor to winner; any other predecessor gives 9
        self.assertTrue(depends(lambda slot, prev: after[slot].get(prev, 9), 7, [1, 2], [5, 5], 10, True))
        self.assertFalse(depends(lambda slot, prev: [1, 2][slot], 7, [1, 2], [5, 5], 10, True))
        self.assertFalse(depends(lambda slot, prev: after[slot].get(prev, 9), 7, [1, 2], [1, 5], 10, True))
        self.assertFalse(depends(lambda slot, prev: after[slot].get(prev, 9), 7, [1, 2], [5, 2], 10, True))

    def test_planted_ties_and_collapsed_neighbours_are_there(self):
        rng = vector_heads.generator(1)
        ties = np.sort(vector_heads.make_logits(rng, 300, 320, "ties", 8).numpy())[:, ::-1]
        self.assertTrue((ties[:, 1] == ties[:, 2]).all() and (ties[:, 7] == ties[:, 8]).all())
        collapsed = np.sort(vector_heads.make_logits(rng, 300, 320, "collapsed", 8).numpy())[:, ::-1]
        self.assertTrue((collapsed[:, :8] == collapsed[:, 1:9]).any())


class TheStoredFile(unittest.TestCase):
    """oracles/vectors.h5 against the stored checkpoints."""

    def groups(self, kind: str):
        with h5py.File(vectors.ROOT / "oracles" / "vectors.h5") as file:
            for name, group in file[kind].items():
                params = json.loads(group.attrs["params"])
                weights = load_file(vectors.ROOT / params["checkpoint"] / "model.safetensors")
                yield name, params, {key: value.double().numpy() for key, value in weights.items()}, {
                    key: dataset[...] for key, dataset in group.items()
                }

    def test_convolutions_follow_the_description(self):
        for name, params, weights, data in self.groups("conv"):
            prefix = f"layers.0.{params['sublayer']}_conv."
            base, group = weights[prefix + "base_kernel"], params["group_size"]
            dyn = (data["prepare_x"] @ weights[prefix + "kernel_projection.weight"].T).reshape(data["prepare_dyn"].shape)
            with self.subTest(name=name):
                np.testing.assert_allclose(data["prepare_dyn"], dyn, rtol=1e-10, atol=1e-12)
                for half, side in enumerate(("prepare", "finish")):
                    kernel = data[f"{side}_dyn"].astype(np.float64)[:, half]
                    expected = convolve(data[f"{side}_x"].astype(np.float64), base[half], kernel, group)
                    np.testing.assert_allclose(data[f"{side}_y"], expected, rtol=1e-10, atol=1e-12)

    def test_selector_walks_follow_the_description(self):
        for name, params, weights, data in self.groups("selector"):
            books = [next(v for k, v in weights.items() if f".{side}_codebook" in k) for side in ("predecessor", "successor")]
            ids = np.argsort(-data["logits"], axis=1, kind="stable")[:, : params["top_k"]]
            np.testing.assert_array_equal(data["topk_ids"], ids)
            previous = int(data["anchor"][0])
            for slot, candidates in enumerate(ids):
                pair = (books[0][previous] * data["hidden"][slot]) @ books[1][candidates].T
                scores = data["logits"][slot, candidates] + pair
                with self.subTest(name=name, slot=slot):
                    np.testing.assert_allclose(data["scores"][slot], scores, rtol=1e-10, atol=1e-12)
                    previous = int(candidates[np.argmax(scores)])
                    self.assertEqual(data["path"][slot], previous)

    def test_tokens_are_the_argmax_and_confidence_is_a_product(self):
        for name, _, _, data in self.groups("markov"):
            np.testing.assert_array_equal(data["markov_logits"].argmax(1), data["tokens"], name)
            self.assertNotEqual(data["logits"].argmax(1).tolist(), data["tokens"].tolist(), name)
        for name, params, weights, data in self.groups("confidence"):
            feature = data["rows"].astype(np.float64)
            if params["with_markov"]:
                feature = np.hstack([feature, weights["markov_head.markov_w1.weight"][data["previous"]]])
            raw = feature @ weights["confidence_head.proj.weight"][0] + weights.get("confidence_head.proj.bias", 0.0)
            np.testing.assert_allclose(data["raw"], raw, rtol=1e-10, atol=1e-12, err_msg=name)

    def test_it_is_written_again_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder, h5py.File(vectors.ROOT / "oracles" / "vectors.h5") as file:
            again = Path(folder) / "conv.h5"
            with oracle_file(again, "vectors") as writer:
                for name, params, datasets in vector_heads.cases(vectors.SMALL):
                    if name.startswith("conv/"):
                        writer.group(name, params)
                        for label, tensor in datasets.items():
                            writer.tensor(f"{name}/{label}", tensor)
            with h5py.File(again) as copy:
                for name, group in copy["conv"].items():
                    for label, dataset in group.items():
                        stored = file[f"conv/{name}/{label}"]
                        self.assertEqual(dataset.attrs["sha256"], stored.attrs["sha256"], f"{name}/{label}")


if __name__ == "__main__":
    unittest.main()
