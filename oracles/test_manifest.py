#!/usr/bin/env python3
"""Self-tests of the manifest and of the random geometries: what is pinned follows what was written, a seed draws the
same drafter every time, and over many seeds every kind of drafter occurs.

Run with the interpreter that runs generate.py: python oracles/test_manifest.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import json
import tempfile
import unittest
from pathlib import Path

import cases
import manifest
import soak_geometries
from draw_geometry import FURTHEST, draw
from refusal import Refused


class Manifest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "manifest.json"

    def renew(self, name: str, content: bytes, written_by: dict, listed: list[str]) -> dict:
        file = self.folder / name
        file.write_bytes(content)
        manifest.renew(self.path, name, file, written_by, listed)
        return json.loads(self.path.read_text())

    def test_an_oracle_written_again_gets_its_digest_and_its_signature_and_the_others_keep_theirs(self):
        self.renew("a.h5", b"a", {"generator": {"x.py": "1"}}, ["a.h5", "b.h5"])
        document = self.renew("b.h5", b"bb", {"generator": {"x.py": "2"}}, ["a.h5", "b.h5"])
        self.assertEqual(document["oracles"]["b.h5"]["bytes"], 2)
        self.assertEqual(document["oracles"]["a.h5"]["sha256"], manifest.digest_of(self.folder / "a.h5"))
        self.assertEqual(len(document["signatures"]), 2)
        again = self.renew("a.h5", b"aaa", {"generator": {"x.py": "2"}}, ["a.h5", "b.h5"])
        self.assertEqual(again["oracles"]["b.h5"], document["oracles"]["b.h5"])
        self.assertEqual(again["oracles"]["a.h5"]["bytes"], 3)
        self.assertEqual(list(again["signatures"].values()), [{"generator": {"x.py": "2"}}])

    def test_an_oracle_that_no_case_names_any_more_leaves_the_manifest(self):
        self.renew("a.h5", b"a", {"generator": {}}, ["a.h5"])
        self.assertEqual(list(self.renew("b.h5", b"b", {"generator": {}}, ["b.h5"])["oracles"]), ["b.h5"])

    def test_a_signature_holds_every_source_reference_and_package_that_takes_part(self):
        signature = manifest.signature()
        self.assertLessEqual({"generate.py", "rope.py", "orders.py", "inputs.py", "h5out.py"}, set(signature["generator"]))
        self.assertEqual(signature["generator"]["rope.py"], manifest.digest_of(manifest.FOLDER / "rope.py"))
        self.assertLessEqual({"dflash.model", "specforge.modeling.draft.dspark"}, set(signature["references"]))
        self.assertGreater(signature["modules"]["transformers"]["files"], 20)
        for name in (*manifest.DISTRIBUTIONS, "python", "hdf5"):
            self.assertTrue(signature["packages"][name]["version"], name)
        self.assertEqual(signature, manifest.signature())

    def test_a_list_with_an_unknown_key_is_refused(self):
        path = self.folder / "cases.json"
        path.write_text('{"schema": 1, "manifests": "m.json", "cases": []}')
        with self.assertRaisesRegex(Refused, "'manifests'"):
            cases.read_cases(path, None)


class Geometries(unittest.TestCase):
    def test_a_seed_draws_the_same_drafter_every_time(self):
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_every_kind_of_drafter_occurs(self):
        drawn = [draw(seed) for seed in range(600)]
        text = [json.dumps(one.config) for one in drawn]
        for words in ("DSpark", "DFlash2", '"yarn"', '"llama3"', '"linear"', '"rope_scaling": {"type"', '"full_attention": {',
                      '"truncate": false', '"attention_factor"', '"mscale_all_dim"', '"factor": null', '"is_causal": true',
                      '"is_causal": false', '"attention_bias": true', '"selector_vocab_size"', '"markov_head_type": "rnn"',
                      '"partial_rotary_factor"', '"input_embedding_scale"', '"sliding_window": 1,'):  # fmt: skip
            self.assertTrue(any(words in one for one in text), words)
        self.assertEqual({one.config["block_size"] for one in drawn}, set(range(1, 17)))
        self.assertTrue(any(one.inputs["context"] > 200 for one in drawn))
        self.assertTrue(any(one.inputs["start"] + one.config["block_size"] == FURTHEST for one in drawn))
        self.assertEqual({one.inputs["precision"] for one in drawn},
                         {"stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc"})  # fmt: skip
        self.assertEqual({one.weights["dtype"] for one in drawn}, {"bf16", "f16", "f32"})

    def test_what_is_no_pass_is_never_counted_as_one(self):
        kinds = {soak_geometries.PASS: 0, soak_geometries.ALARM: 1, soak_geometries.REFUSED: 1, soak_geometries.ERROR: 4,
                 soak_geometries.NO_ORACLE: 5}  # fmt: skip
        for kind, code in kinds.items():
            tally = soak_geometries.Tally()
            tally.take(soak_geometries.Outcome(1, kind, "words", "why"))
            with self.subTest(kind=kind):
                self.assertEqual(tally.exit_code(), code)
                self.assertIn("0 passed" if code else "1 passed", tally.summary(1.0))

    def test_a_stage_outside_its_bar_is_named(self):
        outcome = soak_geometries.Outcome(1, soak_geometries.ALARM, "words")
        stage = {"name": "final", "pass": False, "exact": False, "headroom": -0.5, "isolated": {"pass": False, "share": 2.0}}
        soak_geometries.judged(outcome, {"stages": [stage], "rounds": [{"name": "round.all", "identical": False}]})
        self.assertEqual(outcome.failed, ["final (-0.5 headroom)", "final alone (2.0 of its bound)", "round.all"])
        self.assertEqual((outcome.least, outcome.fullest), ((-0.5, "final"), (2.0, "final")))


if __name__ == "__main__":
    unittest.main()
