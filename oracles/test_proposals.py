#!/usr/bin/env python3
"""Self-tests of what follows `final`: every stage against a second computation in numpy, ids, seeds, second opinions,
precision modes and the layout that SpecForge wants.

Run with the interpreter that runs generate.py: python oracles/test_proposals.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import json
import unittest
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import config_rules
import families
import packages
import precision
import proposals
import second
from refusal import Refused
from test_oracles import SLIDING, OracleTest, read_oracle, run
from test_support import make_checkpoint

SCALED = {"output_multiplier": 0.4, "final_logit_softcapping": 6.0}
CHECKPOINTS = {
    "dflash-head": {"lm_head": True},
    "dflash2-head": {"lm_head": True, "kernel": 2, **SLIDING, "is_causal": False, **SCALED},
    "dflash2-suffix": {"lm_head": True, "kernel": 3, "suffix": ".weight", **SLIDING, "dtype": torch.float32},
    "vanilla": {"lm_head": True, "markov": "vanilla", "confidence": "markov"},
    "gated": {"lm_head": True, "markov": "gated", "confidence": "bias", **SLIDING},
    "rnn": {"lm_head": True, "markov": "rnn", "confidence": "plain", **SLIDING},
    "wrapped": {"lm_head": True, "markov": "vanilla", "wrapper": "logit_head."},
}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def again(geometry: dict, weights: dict, anchor: int, stages: dict) -> dict:
    """The stages after `final` from the recorded ones, in float64 numpy and by the description alone."""
    out, w = {}, {name.removeprefix("logit_head."): value for name, value in weights.items()}
    rows = stages["final"][0 if geometry["harvest"] == "shifted" else 1 :]
    logits = rows @ w["lm_head.weight"].T * geometry["output_multiplier"]
    cap = geometry["final_logit_softcapping"]
    out["logits"] = np.tanh(logits / cap) * cap if cap else logits
    logits, tokens, previous = stages["logits"], [], anchor
    if geometry["family"] == "dflash2":
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : geometry["selector_top_k"]]
        hidden = rows @ w["candidate_selector.hidden_projection.weight"].T
        out |= {"select.topk_ids": ids, "select.topk_values": np.take_along_axis(logits, ids, 1), "select.hidden": hidden}
        books = [w[f"candidate_selector.{side}_codebook"] for side in ("predecessor", "successor")]
        scores = []
        for row, h in enumerate(stages["select.hidden"]):
            scores.append([logits[row, b] + np.sum(books[0][previous] * h * books[1][b]) for b in ids[row]])
            previous = ids[row][int(np.argmax(scores[-1]))]
            tokens.append(previous)
        return {**out, "select.scores": np.array(scores), "select.path": np.array(tokens)}
    if geometry["family"] == "dflash":
        return out
    e, state, corrected, chain = w["markov_head.markov_w1.weight"], np.zeros(8), [], [anchor]
    for row, h in enumerate(rows):
        latent = e[previous]
        if geometry["markov"] == "gated":
            gate = w["markov_head.gate_proj.weight"] @ np.concatenate([h, latent]) + w["markov_head.gate_proj.bias"]
            latent = sigmoid(gate) * latent
        if geometry["markov"] == "rnn":
            joint = np.concatenate([state, latent, h])
            a, c, o = np.split(w["markov_head.joint_proj.weight"] @ joint + w["markov_head.joint_proj.bias"], 3)
            state = sigmoid(a) * state + (1 - sigmoid(a)) * np.tanh(c)
            latent = np.tanh(o)
        corrected.append(logits[row] + w["markov_head.markov_w2.weight"] @ latent)
        previous = int(np.argmax(corrected[-1]))
        chain.append(previous)
    out |= {"markov.logits": np.array(corrected), "markov.tokens": np.array(chain[1:])}
    if geometry["confidence"]:
        feature = np.hstack([rows, e[chain[:-1]]]) if geometry["confidence_with_markov"] else rows
        out["confidence.raw"] = feature @ w["confidence_head.proj.weight"][0] + w.get("confidence_head.proj.bias", 0.0)
        kept = int(np.sum(np.cumprod(sigmoid(out["confidence.raw"])) >= 0.5))
        out["confidence.window"] = np.array([min(max(kept + 1, 2), len(rows) + 1)])
    return out


class ProposalTest(OracleTest):
    def made(self, name: str, *more, **changes):
        checkpoint = make_checkpoint(self.folder / name, **{**CHECKPOINTS[name], **changes})
        code, said = self.generate(checkpoint, *more, context=40)
        self.assertEqual(code, 0, said)
        return checkpoint, *read_oracle(self.folder / "out.h5"), said


class TheStages(ProposalTest):
    def check(self, name: str) -> None:
        checkpoint, geometry, provenance, inputs, stages, _ = self.made(name)
        weights = {key.removesuffix(".weight") if "codebook" in key else key: tensor.double().numpy()
                   for key, tensor in load_file(checkpoint / "model.safetensors").items()}  # fmt: skip
        truth = stages["float64"]
        expected = again(geometry, weights, int(inputs["anchor"][0]), truth)
        after = {stage for stage in truth if not stage.startswith(("layers.", "ctx.", "rope.", "kv.")) and stage != "final"}
        self.assertEqual(set(expected), after)
        for stage, value in expected.items():
            with self.subTest(stage=stage):
                self.assertEqual(value.shape, truth[stage].shape)
                if stage in proposals.INTEGER_STAGES:
                    for run_name in ("float64", "float32"):
                        np.testing.assert_array_equal(stages[run_name][stage], value)
                else:
                    self.assertLess(np.abs(value - truth[stage]).max() / np.abs(value).max(), 2e-13)
        self.assertEqual(provenance["head"]["shape"], [256, 64])
        self.assertNotIn("lm_head.weight", provenance["tensors"])
        self.assertNotEqual(inputs["anchor"][0], geometry["mask_token_id"])

    def test_a_chain_that_forgets_its_predecessor_would_be_seen(self):
        checkpoint, geometry, _, inputs, stages, _ = self.made("vanilla")
        weights = {key: tensor.double().numpy() for key, tensor in load_file(checkpoint / "model.safetensors").items()}
        right = int(inputs["anchor"][0])
        wrong = again(geometry, weights, (right + 1) % 256, stages["float64"])
        self.assertGreater(np.abs(wrong["markov.logits"] - stages["float64"]["markov.logits"]).max(), 0.1)

    def test_without_a_head_there_are_neither_proposals_nor_an_anchor(self):
        _, _, provenance, inputs, stages, _ = self.made("vanilla", lm_head=False)
        self.assertNotIn("anchor", inputs)
        self.assertNotIn("head", provenance)
        self.assertNotIn("logits", stages["float64"])


for case in CHECKPOINTS:
    setattr(TheStages, f"test_every_stage_of_{case.replace('-', '_')}_follows_from_the_one_before",
            lambda self, case=case: self.check(case))  # fmt: skip


class TheIds(ProposalTest):
    def test_candidates_are_sorted_and_ties_go_to_the_lower_id(self):
        logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]])
        values, ids = proposals.sorted_topk(logits, 4)
        self.assertEqual(ids.tolist(), [[1, 3, 2, 4]])
        self.assertEqual(values.tolist(), [[3.0, 3.0, 2.0, 2.0]])

    def test_the_verify_window_follows_the_published_examples(self):
        raw = [float(np.log(s / (1 - s))) for s in (0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9)]
        found = [proposals.survival_window(raw, threshold, 8) for threshold in (0.5, 0.7, 0.05)]
        self.assertEqual(found, [6, 3, 8])
        self.assertEqual(proposals.survival_window([-9.0], 0.5, 8), 2)

    def test_a_head_whose_best_rows_tie_is_refused_after_every_seed(self):
        checkpoint = make_checkpoint(self.folder / "tie", lm_head=True)
        tensors = load_file(checkpoint / "model.safetensors")
        tensors["lm_head.weight"][128:] = tensors["lm_head.weight"][:128].clone()
        save_file(tensors, checkpoint / "model.safetensors")
        with mock.patch.object(generate, "SEEDS", 2):
            self.refused(checkpoint, "seeds 3 to 4 all give near ties", "0 apart")

    def test_a_seed_passed_over_is_recorded_and_the_next_one_used(self):
        whole, calls = generate.check_margins, []

        def once(*arguments):
            calls.append(1)
            if len(calls) == 1:
                raise proposals.NearTie("made up")
            return whole(*arguments)

        with mock.patch.object(generate, "check_margins", once):
            _, _, provenance, _, _, said = self.made("vanilla")
        self.assertEqual(provenance["seeds_passed_over"], [{"seed": 3, "why": "made up"}])
        self.assertEqual(provenance["seed"], 4)
        self.assertIn("--seed 3", provenance["command"])
        self.assertIn("seed 3 is passed over", said)

    def test_each_kind_of_near_tie_is_seen(self):
        def runs(**changes):
            single = {"logits": torch.tensor([[5.0, 1.0, 0.0]]), "markov.tokens": torch.tensor([0]),
                      "confidence.raw": torch.tensor([2.0])}  # fmt: skip
            truth = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in single.items()}
            truth["logits"] = truth["logits"] + 1e-6
            return {"float64": truth | changes, "float32": single}

        proposals.check_margins(runs(), 1, 0)
        zero = torch.tensor([0.0], dtype=torch.float64)
        for changes, phrase in (
            ({"markov.tokens": torch.tensor([1])}, "in float64"),
            ({"logits": torch.tensor([[5.0, 5.0 + 1e-6, 0.0]], dtype=torch.float64)}, "apart where float32"),
            ({"confidence.raw": zero}, "too near to the threshold"),
        ):
            with self.subTest(phrase), self.assertRaisesRegex(proposals.NearTie, phrase):
                proposals.check_margins(runs(**changes), 1, 0)

    def test_a_candidate_outside_the_selector_vocabulary_is_a_reason_for_another_seed(self):
        checkpoint = make_checkpoint(self.folder / "low", **CHECKPOINTS["dflash2-head"], selector_vocab_size=8)
        with mock.patch.object(generate, "SEEDS", 1):
            self.refused(checkpoint, "is not below selector_vocab_size 8")

    def test_the_head_may_be_in_a_file_of_its_own(self):
        checkpoint, _, provenance, inputs, stages, _ = self.made("dflash2-head")
        tensors = load_file(checkpoint / "model.safetensors")
        head = self.folder / "target.safetensors"
        save_file({"lm_head.weight": tensors.pop("lm_head.weight"), "embed_tokens.weight": torch.zeros(2, 2)}, head)
        save_file(tensors, checkpoint / "model.safetensors")
        code, said = self.generate(checkpoint, context=40)
        self.assertEqual(code, 0)
        self.assertIn("no output head: a check refuses an oracle of dflash2 without one; give --lm-head", said)
        code, said = self.generate(checkpoint, "--lm-head", head, context=40)
        self.assertEqual(code, 0, said)
        _, again_provenance, again_inputs, again_stages = read_oracle(self.folder / "out.h5")
        self.assertEqual(again_provenance["head"], provenance["head"])
        self.assertIn("--lm-head", again_provenance["command"])
        np.testing.assert_array_equal(again_inputs["anchor"], inputs["anchor"])
        for run_name, run in stages.items():
            for stage, value in run.items():
                np.testing.assert_array_equal(again_stages[run_name][stage], value)
        for wrong, reason in ((checkpoint / "model.safetensors", "has no tensor lm_head.weight"),
                              (self.folder / "none", "cannot be read")):  # fmt: skip
            code, said = self.generate(checkpoint, "--lm-head", wrong, context=40)
            self.assertEqual(code, 3, said)
            self.assertIn(reason, said)

    def test_a_head_of_another_shape_is_refused(self):
        checkpoint = make_checkpoint(self.folder / "short", lm_head=True)
        tensors = load_file(checkpoint / "model.safetensors")
        tensors["lm_head.weight"] = tensors["lm_head.weight"][:200].clone()
        save_file(tensors, checkpoint / "model.safetensors")
        self.refused(checkpoint, "lm_head.weight is BF16[200, 64], expected", "[256, 64]")


class TheSecondOpinion(ProposalTest):
    def test_it_is_recorded_for_dflash2_and_dspark(self):
        for name, package in (("dflash2-head", "nemo-automodel"), ("dflash2-suffix", "nemo-automodel"), ("rnn", "dflash")):
            with self.subTest(name=name):
                opinion = self.made(name)[2]["second_opinion"]
                self.assertEqual(opinion["package"], package)
                for run_name, limit in (("float64", 1e-12), ("float32", 1e-4)):
                    self.assertLess(opinion[run_name]["stages"]["final"]["rel_l2"], limit)
                self.assertEqual("select.scores" in opinion["float64"]["stages"], package == "nemo-automodel")

    def test_another_model_is_not_passed_off_as_the_same(self):
        build = second.build

        def other(*arguments):
            model, code = build(*arguments)
            model.layers[1].mlp.up_proj.weight[0, 0] += 1e-4
            return model, code

        for name in ("dflash2-head", "gated"):
            with self.subTest(name=name), mock.patch.object(second, "build", other):
                self.refused(make_checkpoint(self.folder / name, **CHECKPOINTS[name]),
                             "layers.", "They do not compute the same model")  # fmt: skip


class TheSpecForgeLayout(ProposalTest):
    def test_keys_at_the_top_level_are_copied_and_give_the_same_stages(self):
        truth = self.made("vanilla")[4]["float64"]["markov.logits"]
        path = self.folder / "vanilla" / "config.json"
        config = json.loads(path.read_text())
        nested = config.pop("dflash_config")
        path.write_text(json.dumps({**config, **nested}))
        self.assertEqual(self.generate(self.folder / "vanilla", context=40)[0], 0)
        _, provenance, _, stages = read_oracle(self.folder / "out.h5")
        np.testing.assert_array_equal(stages["float64"]["markov.logits"], truth)
        self.assertTrue(any("where SpecForge reads them" in note and "markov_rank" in note
                            for note in provenance["adapters"]))  # fmt: skip

    def test_a_missing_confidence_bias_is_zero_and_recorded(self):
        notes = self.made("rnn")[2]["adapters"]
        self.assertTrue(any("confidence_head.proj.bias is absent" in note for note in notes))

    def test_contradictions_are_refused(self):
        for name, changes, phrase in (
            ("twice", {"markov_rank": 4}, '"markov_rank" in the top level is 4, but "markov_rank" in dflash_config is 8'),
            ("unshifted", {"shift_label": False}, "the key must not be changed"),
            ("scaled", {"output_multiplier": 0.5}, "SpecForge's DSpark applies none"),
            ("two-kinds", {"architectures": ["DSparkDraftModel"], "projector_type": "dflash"}, "dflash"),
        ):
            with self.subTest(name=name):
                self.refused(make_checkpoint(self.folder / name, **{**CHECKPOINTS["vanilla"], **changes}), phrase)


class TheMasks(unittest.TestCase):
    """SpecForge's own masks are given to it, and must be those of the geometry record."""

    def masks(self, causal: list[bool], window: int, rows: int = 5, keys: int = 30):
        facts = config_rules.Facts("dspark", layer_types=["sliding_attention", "full_attention"], is_causal=causal)
        model = SimpleNamespace(layer_types=facts.layer_types, sliding_window=window)
        return families.specforge_masks(facts, model, rows, keys)

    def test_a_sliding_layer_is_causal_inside_the_block_and_a_full_layer_sees_everything(self):
        masks = self.masks([True, False], 8)
        query, key = np.arange(25, 30)[:, None], np.arange(30)[None, :]
        expected = (key <= query) & (query - key < 8)
        np.testing.assert_array_equal(masks["sliding_attention"][0, 0].numpy(), expected)
        self.assertIsNone(masks["full_attention"])

    def test_another_mask_than_the_one_of_the_record_is_refused(self):
        for causal, window in (([False, False], 8), ([True, True], 8), ([True, False], 4)):
            with self.subTest(causal=causal, window=window), self.assertRaisesRegex(Refused, "own mask"):
                self.masks(causal, window)

    def test_a_function_of_specforge_that_changes_is_noticed(self):
        code = packages.specforge_masks()
        original = code.create_dflash_sdpa_mask
        with mock.patch.object(code, "create_dflash_sdpa_mask", lambda *arguments: ~original(*arguments)):
            with self.assertRaisesRegex(Refused, "own mask"):
                self.masks([True, False], 8)


class ThePrecision(ProposalTest):
    def test_each_mode_holds_each_matrix_as_the_table_says(self):
        names = ("fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight",
                 "layers.0.mlp_conv.kernel_projection.weight", "markov_head.markov_w1.weight",
                 "markov_head.markov_w2.weight", "markov_head.gate_proj.weight", "confidence_head.proj.weight",
                 "candidate_selector.predecessor_codebook")  # fmt: skip
        table = {
            "stored": ["file"] * 9,
            "f32": ["f32"] * 8 + ["file"],
            "bf16": ["bf16"] * 7 + ["f32", "file"],
            "q8_0": ["q8_0"] * 4 + ["bf16", "q8_0", "q8_0", "f32", "file"],
            "q4_0": ["q4_0"] * 4 + ["bf16", "q8_0", "q4_0", "f32", "file"],
            "mixed": ["bf16", "bf16", "q8_0", "bf16", "bf16", "q8_0", "bf16", "f32", "file"],
            "fc": ["bf16", "q8_0", "q8_0", "q8_0", "bf16", "q8_0", "q8_0", "f32", "file"],
        }
        self.assertEqual(set(table), set(precision.MODES))
        for mode, kinds in table.items():
            self.assertEqual([precision.held_as(mode, name, [4, 32]) for name in names], kinds, mode)
        for name, shape in (("norm.weight", [32]), ("layers.0.mlp_conv.base_kernel", [2, 2, 32])):
            self.assertEqual(precision.held_as("q4_0", name, shape), "file")

    def test_blocks_decode_to_the_values_of_the_description(self):
        x = np.random.Generator(np.random.Philox(1)).standard_normal((4, 64)).astype(np.float32)
        blocks = x.reshape(-1, 32)
        d = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
        scaled = blocks * (np.float32(1) / d)
        q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
        expected = {"q8_0": q * d.astype(np.float16).astype(np.float32)}
        v = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1) / np.float32(-8)
        q = np.clip(np.trunc(blocks * (np.float32(1) / v) + np.float32(8.5)), 0, 15)
        expected["q4_0"] = (q - 8) * v.astype(np.float16).astype(np.float32)
        for mode, values in expected.items():
            found = precision.decoded(mode, "fc.weight", torch.from_numpy(x)).numpy()
            np.testing.assert_array_equal(found, values.reshape(x.shape), mode)

    def test_the_drift_grows_from_mode_to_mode_and_is_recorded(self):
        checkpoint = make_checkpoint(self.folder / "even", intermediate_size=128, dtype=torch.float32)
        finals = {}
        for mode in precision.MODES:
            self.assertEqual(self.generate(checkpoint, "--precision", mode)[0], 0)
            _, provenance, _, stages = read_oracle(self.folder / "out.h5")
            finals[mode] = stages["float64"]["final"]
            self.assertEqual(provenance.get("precision", "stored"), mode)
            self.assertEqual(f"--precision {mode}" in provenance["command"], mode != "stored")
        drift = {mode: np.linalg.norm(final - finals["stored"]) for mode, final in finals.items()}
        self.assertEqual(drift["f32"], 0.0)
        self.assertTrue(0 < drift["bf16"] < drift["mixed"] < drift["q8_0"] < drift["q4_0"], drift)
        self.assertTrue(drift["bf16"] < drift["fc"] < drift["q4_0"], drift)

    def test_rows_that_are_not_whole_blocks_are_refused_by_name(self):
        code, said = self.generate(make_checkpoint(self.folder / "odd"), "--precision", "q8_0")
        self.assertEqual(code, 3)
        self.assertIn("layers.0.mlp.down_proj.weight has rows of 112 values", said)

    def test_a_value_that_bf16_turns_into_an_infinity_is_refused(self):
        with self.assertRaisesRegex(precision.PrecisionError, "fc.weight holds a value"):
            precision.decoded("bf16", "fc.weight", torch.tensor([[3.4e38]]))


class TheCases(ProposalTest):
    def test_unknown_keys_and_modes_are_refused(self):
        case = {"name": "a", "checkpoint": "c", "oracle": "o", "context": 24, "start": 100, "input_seed": 1,
                "input_profile": "unit", "sample_stride": 1}  # fmt: skip
        for changes, phrase in (({"precision": "q5"}, "precision is 'q5'"), ({"presicion": "q8_0"}, "'presicion'"),
                                ({"full_stages": "final"}, "full_stages is 'final'")):  # fmt: skip
            (self.folder / "cases.json").write_text(json.dumps({"schema": 1, "cases": [{**case, **changes}]}))
            code, said = run("--cases", self.folder / "cases.json")
            self.assertEqual(code, 3)
            self.assertIn(phrase, said)

    def test_full_stages_names_what_stays_whole(self):
        import h5py

        self.made("dflash2-head", "--sample-stride", "7", "--full-stages", "final")
        with h5py.File(self.folder / "out.h5") as file:
            sampled = {name for name, dataset in file["stages/float64"].items() if "sample_stride" in dataset.attrs}
        self.assertIn("logits", sampled)
        self.assertIn("layers.0.out", sampled)
        for name in ("final", "rope.cos", "select.topk_ids", "select.scores", "select.path"):
            self.assertNotIn(name, sampled)


if __name__ == "__main__":
    unittest.main()
