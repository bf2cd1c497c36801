#!/usr/bin/env python3
"""Self-tests of the stored proposals, logits, windows, residuals and draws: each computed again in numpy.

Run with the interpreter that runs generate.py: python oracles/test_vector_sampling.py
"""

from __future__ import annotations

import generate  # noqa: F401  first: it settles how torch is imported

import json
import unittest

import h5py
import numpy as np
from safetensors.torch import load_file

import vector_sampling
import vectors
from vector_heads import generator


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class TheStoredFile(unittest.TestCase):
    def groups(self, kind: str):
        with h5py.File(vectors.ROOT / "oracles" / "vectors.h5") as file:
            for name, group in file[kind].items():
                params = json.loads(group.attrs["params"])
                yield name, params, {key: dataset[...] for key, dataset in group.items()}

    def scores(self, params: dict, data: dict) -> np.ndarray:
        """Over the candidates of each slot, along the stored tokens, by the description alone."""
        weights = {key: value.double().numpy()
                   for key, value in load_file(vectors.ROOT / params["checkpoint"] / "model.safetensors").items()}  # fmt: skip
        rows, logits, ids = data["rows"].astype(np.float64), data["logits"].astype(np.float64), data["candidate"]
        previous = np.concatenate([data["anchor"], data["token"][:-1]])
        if "candidate_selector.hidden_projection.weight" in weights:
            hidden = rows @ weights["candidate_selector.hidden_projection.weight"].T
            before, after = (weights[f"candidate_selector.{side}_codebook"] for side in ("predecessor", "successor"))
            column = {int(i + o): i for i, o in enumerate(data.get("offset", np.zeros(logits.shape[1], int)))}
            unary = np.array([[logits[slot, column[int(token)]] for token in ids[slot]] for slot in range(len(ids))])
            return unary + np.einsum("sr,skr->sk", before[previous] * hidden, after[ids])
        if "markov_head.markov_w1.weight" not in weights:
            return logits
        e, w2 = weights["markov_head.markov_w1.weight"][previous], weights["markov_head.markov_w2.weight"]
        if "markov_head.gate_proj.weight" in weights:
            gate = np.hstack([rows, e]) @ weights["markov_head.gate_proj.weight"].T + weights["markov_head.gate_proj.bias"]
            e = e / (1.0 + np.exp(-gate))
        if "markov_head.joint_proj.weight" in weights:
            state, out = np.zeros(e.shape[1]), []
            for h, latent in zip(rows, e, strict=True):
                joint = weights["markov_head.joint_proj.weight"] @ np.concatenate([state, latent, h])
                a, c, o = np.split(joint + weights["markov_head.joint_proj.bias"], 3)
                keep = 1.0 / (1.0 + np.exp(-a))
                state = keep * state + (1 - keep) * np.tanh(c)
                out.append(np.tanh(o))
            e = np.array(out)
        return logits + e @ w2.T

    def test_proposals_follow_the_description(self):
        kinds = set()
        for name, params, data in self.groups("proposal"):
            with self.subTest(name=name):
                kinds.add((params["checkpoint"].split("-")[1:2] == ["embed"], params["temperature"] > 0, "offset" in data))
                scores, ids = self.scores(params, data), data["candidate"]
                ids = ids if ids.ndim == 2 else np.broadcast_to(ids, scores.shape)
                if "offset" in data:
                    own = np.arange(len(data["offset"])) + data["offset"]
                    self.assertEqual(len(set(own)), len(own))
                    self.assertGreater(np.abs(data["offset"]).max(), 0)
                    self.assertTrue(set(ids.ravel().tolist()) <= set(own.tolist()))
                    np.testing.assert_array_equal(data["logits"], data["logits_float64"].astype(np.float32))
                probability = softmax(scores / (params["temperature"] or 1.0))
                if params["temperature"] > 0:
                    cumulative = probability.cumsum(-1)
                    chosen = np.array([np.searchsorted(c, u * c[-1], side="right")
                                       for c, u in zip(cumulative, data["uniform"].astype(np.float64), strict=True)])  # fmt: skip
                    edges = np.abs(cumulative[:, :-1] / cumulative[:, -1:] - data["uniform"][:, None].astype(np.float64))
                    self.assertGreater(edges.min(), 0.9 * vector_sampling.EDGE)
                    np.testing.assert_allclose(data["probability"], probability, rtol=1e-9, atol=1e-15)
                else:
                    chosen = scores.argmax(-1)
                    np.testing.assert_array_equal(data["probability"], np.eye(scores.shape[1])[chosen])
                np.testing.assert_array_equal(data["token"], ids[np.arange(len(ids)), chosen])
                np.testing.assert_allclose(data["share"], probability[np.arange(len(ids)), chosen], rtol=1e-9)
        self.assertEqual(len(kinds), 4)  # the embedded checkpoints in three ways, the others sampled

    def test_logits_have_multiplier_and_softcap(self):
        for name, params, data in self.groups("logits"):
            config = json.loads((vectors.ROOT / params["checkpoint"] / "config.json").read_text())
            nested = config.get("dflash_config", {})
            logits = data["rows"].astype(np.float64) @ data["head"].astype(np.float64).T * nested.get("output_multiplier", 1.0)
            cap = nested.get("final_logit_softcapping", 0.0)
            expected = np.tanh(logits / cap) * cap if cap else logits
            np.testing.assert_allclose(data["logits"], expected, rtol=1e-10, atol=1e-12, err_msg=name)
            if cap:
                self.assertGreater(np.abs(expected).max(), 0.95 * cap)

    def test_windows_residuals_draws_and_acceptance(self):
        groups = {name: (params, data) for name, params, data in self.groups("verify")}
        params, data = groups["windows"]
        ends = set()
        for (row, policy, threshold, cap, accepted), window in zip(params["cases"], data["window"], strict=True):
            sigma = 1 / (1 + np.exp(-data["raw"][row].astype(np.float64)))
            kept = np.cumprod(sigma) if policy == "survival" else np.minimum.accumulate(sigma)
            expected = accepted + 2 if policy == "ladder" else 1 + int(np.sum(kept >= np.float32(threshold)))
            self.assertEqual(window, min(max(expected, 3 if policy == "ladder" else 2), cap))
            ends |= {(policy, "least")} if expected <= 1 or accepted == 0 else set()
            ends |= {(policy, "cap")} if expected > cap else set()
        self.assertEqual(len(ends), 6)
        for kind in ("whole", "candidates", "same"):
            _, data = groups[f"residual.{kind}"]
            rest = data["p"].astype(np.float64)
            np.subtract.at(rest, data.get("candidate", np.arange(len(rest))), data["q"].astype(np.float64))
            rest = np.maximum(rest, 0)
            expected = rest / rest.sum() if rest.sum() > 0 else data["p"].astype(np.float64)
            np.testing.assert_allclose(data["residual"], expected, rtol=1e-12)
        _, data = groups["accept"]
        exact = data["u"].astype(np.float64) * data["q"].astype(np.float64)
        np.testing.assert_array_equal(data["accepted"], exact < data["p"].astype(np.float64))
        self.assertGreater(int(np.sum(exact == data["p"])), 5)
        _, data = groups["draw"]
        self.assertEqual(data["index"][-4:].tolist(), [-1] * 4)

    def test_a_draw_lies_near_an_edge_and_not_on_it(self):
        draws = vector_sampling.Draws(generator(1))
        import torch

        probability = torch.softmax(torch.arange(50, dtype=torch.float64) % 7, -1)
        for _ in range(20):
            draws(probability[None], 1)
        self.assertTrue(draws.clear())
        draws.uniform[5] = float(probability[:9].sum())
        self.assertFalse(draws.clear())


if __name__ == "__main__":
    unittest.main()
