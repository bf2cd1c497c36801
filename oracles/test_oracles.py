#!/usr/bin/env python3
"""Self-tests of the oracle generator: the float64 checker fires, every stage is what its name says, files are exact.

Run with the interpreter that runs generate.py: python oracles/test_oracles.py
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import contextlib
import hashlib
import io
import json
import math
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config, Qwen3RMSNorm

import h5out
import reference
import rope
from inputs import make_inputs
from lift import Float64Only, LiftError
from refusal import Refused
from sketch import PROJECTIONS, sketch, words
from stages import FULL_STAGES, Storage
from test_config_rules import RULES, edited
from test_support import LAYERS, make_checkpoint, recompute
from weights import Tensors

SLIDING = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 16,
           "use_sliding_window": True}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 256}  # fmt: skip
UNEQUAL = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}

CHECKPOINTS = {
    "plain": {},
    "windowed": {**SLIDING, "is_causal": False},
    "causal": SLIDING,
    "yarn": {"rope_theta": None, "rope_parameters": YARN},
    "yarn-explicit": {
        "rope_theta": None,
        "rope_parameters": {**YARN, "attention_factor": 1.5, "truncate": False, "beta_fast": 20},
    },
    "llama3": {"rope_scaling": LLAMA3},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "bias": {"attention_bias": True, "dtype": torch.float16},
    "partial": {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "partial-yarn": {"rope_theta": None, "rope_parameters": {**YARN, "partial_rotary_factor": 0.5}},
    "wide": {"hidden_size": 48, "head_dim": 12},
    "conv-2": {"kernel": 2, **SLIDING, "is_causal": False},
    "conv-3": {"kernel": 3, "suffix": ".weight", "dtype": torch.float32, "input_embedding_scale": 8.0},
}


def run(*arguments) -> tuple[int, str]:
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(stream):
        try:
            code = generate.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
    return code, stream.getvalue()


def read_oracle(path: Path) -> tuple[dict, dict, dict, dict]:
    """Geometry, provenance, inputs and stages of a file, values widened from their logical dtype."""

    def values(dataset):
        array = dataset[...]
        if dataset.attrs["logical_dtype"] == b"bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return array

    with h5py.File(path) as file:
        documents = [json.loads(file[name][()]) for name in ("geometry", "provenance")]
        inputs = {name: values(dataset) for name, dataset in file["inputs"].items()}
        stages = {run: {name: values(d) for name, d in group.items()} for run, group in file["stages"].items()}
    return *documents, inputs, stages


class OracleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(2)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def checkpoint(self, name: str, **more) -> Path:
        return make_checkpoint(self.folder / name, **{**CHECKPOINTS[name], **more})

    def generate(self, checkpoint: Path, *more, out: str = "out.h5", context: int = 24) -> tuple[int, str]:
        return run("--checkpoint", checkpoint, "--out", self.folder / out, "--context", context, "--start", 1000,
                   "--seed", 3, *more)  # fmt: skip

    def refused(self, checkpoint: Path, *phrases: str) -> None:
        code, said = self.generate(checkpoint)
        self.assertEqual(code, 3, said)
        for phrase in phrases:
            self.assertIn(phrase, said)
        self.assertEqual([p.name for p in self.folder.iterdir() if p.is_file()], [], "a refusal left a file")


single = torch.ones(3)


class TheFloat64Checker(unittest.TestCase):
    def test_a_float32_operand_is_refused(self):
        with self.assertRaisesRegex(LiftError, r"aten.mul.*reads float32\[3\]"), Float64Only():
            torch.ops.aten.mul(torch.ones(3, dtype=torch.float64), single)

    def test_a_float32_tensor_made_inside_is_refused(self):
        with self.assertRaisesRegex(LiftError, "writes float32"), Float64Only():
            torch.zeros(3)

    def test_a_cast_to_float32_becomes_a_float64_copy(self):
        value = torch.tensor([1.0 + 2.0**-40], dtype=torch.float64)
        with Float64Only() as mode:
            narrowed = value.to(torch.float32)
        self.assertEqual(narrowed.dtype, torch.float64)
        self.assertEqual(narrowed.item(), value.item())
        self.assertEqual(mode.lifted_casts, 1)

    def test_without_the_mode_the_reference_norm_is_only_float32_accurate(self):
        norm = Qwen3RMSNorm(64).double()
        x = torch.randn(8, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        exact = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        with torch.no_grad():
            plain = norm(x)
            with Float64Only():
                lifted = norm(x)
        self.assertGreater((plain - exact).abs().max().item(), 1e-9)
        self.assertLess((lifted - exact).abs().max().item(), 1e-14)

    def test_float32_angles_are_allowed_only_inside_the_rotary_module(self):
        class Angles(torch.nn.Module):
            def forward(self, positions):
                return (positions.to(torch.float32)[None, :, None] @ table).cos()

        table, module, positions = torch.full((1, 1, 1), 0.3), Angles(), torch.tensor([100001])
        mode = Float64Only()
        with mode.around_rotary(module), mode:
            found = module(positions)
        self.assertEqual(found.item(), math.cos(float(np.float32(100001) * np.float32(0.3))))
        with self.assertRaises(LiftError), Float64Only():
            module(positions)

    def test_arithmetic_on_float32_inside_the_rotary_module_is_refused(self):
        class Scaled(torch.nn.Module):
            def forward(self, table):
                return table * 2.0

        mode = Float64Only()
        with self.assertRaisesRegex(LiftError, "aten.mul"), mode.around_rotary(module := Scaled()), mode:
            module(single)


class TheStages(OracleTest):
    def check(self, name: str, context: int = 24) -> None:
        checkpoint = self.checkpoint(name)
        code, said = self.generate(checkpoint, context=context)
        self.assertEqual(code, 0, said)
        geometry, _, inputs, stages = read_oracle(self.folder / "out.h5")
        weights = {key.removesuffix(".weight") if "codebook" in key else key: tensor.double().numpy()
                   for key, tensor in load_file(checkpoint / "model.safetensors").items()}  # fmt: skip
        truth = {**stages["float64"], "table": stages["float32"]["rope.inv_freq"]}
        again = recompute(geometry, weights, inputs, truth)
        self.assertEqual(set(again) | {"rope.inv_freq"}, set(stages["float64"]))
        for stage, value in again.items():
            with self.subTest(stage=stage):
                self.assertEqual(value.shape, truth[stage].shape)
                scale = np.sqrt(np.mean(value**2))
                self.assertLess(np.abs(value - truth[stage]).max() / scale, 2e-13)

    def test_a_hook_in_the_wrong_place_would_be_seen(self):
        checkpoint = self.checkpoint("plain")
        self.generate(checkpoint)
        geometry, _, inputs, stages = read_oracle(self.folder / "out.h5")
        weights = {key: tensor.double().numpy() for key, tensor in load_file(checkpoint / "model.safetensors").items()}
        truth = {**stages["float64"], "table": stages["float32"]["rope.inv_freq"]}
        truth["layers.1.attn.q_norm"] = truth["layers.1.attn.q_norm"] * (1 + 1e-10)
        again = recompute(geometry, weights, inputs, truth)
        self.assertGreater(np.abs(again["layers.1.attn.q_rope"] - truth["layers.1.attn.q_rope"]).max(), 1e-11)


for case in CHECKPOINTS:
    long = "sliding_window" in CHECKPOINTS[case]

    def method(self, case=case, context=40 if long else 24):
        self.check(case, context)

    setattr(TheStages, f"test_every_stage_of_{case.replace('-', '_')}_follows_from_the_one_before", method)


class TheModel(OracleTest):
    def test_it_equals_the_one_that_from_pretrained_builds(self):
        for name in ("windowed", "conv-2", "yarn"):
            directory = self.checkpoint(name)
            checkpoint = reference.open_checkpoint(directory)
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(name=name, dtype=dtype):
                    ours = reference.build(checkpoint, Tensors.scan(directory), dtype)
                    theirs = checkpoint.model_class.from_pretrained(directory, dtype=dtype).eval()
                    made = make_inputs(seed=1, profile="unit", context=24, start=500, block=5, hidden=64, taps=3,
                                       embedding_scale=1.0)  # fmt: skip
                    arguments = {
                        "position_ids": made.positions[None],
                        "noise_embedding": made.noise_embedding[None].to(dtype),
                        "target_hidden": made.target_hidden[None].to(dtype),
                    }
                    with torch.no_grad():
                        self.assertTrue(torch.equal(ours(**arguments), theirs(**arguments)))

    def test_the_frequency_table_is_the_correctly_rounded_one(self):
        for dim, theta in ((128, 1e6), (128, 1e7), (64, 1e4), (16, 1e6), (128, 5e5), (64, 8e6), (80, 1e7),
                           (14, 1e6), (112, 1e6),  # where powf is a unit off, at 1e6 ** (2/7)
                           (8, 123456.78901), (16, 4321.987654321)):
            config = Qwen3Config(
                head_dim=dim, rope_parameters={"rope_type": "default", "rope_theta": theta}
            )
            exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
            powers = np.array([math.pow(float(np.float32(theta)), float(e)) for e in exponents]).astype(np.float32)
            with self.subTest(dim=dim, theta=theta):
                found = rope.make_rotary(config).inv_freq.numpy()
                np.testing.assert_array_equal(found.view(np.int32), (np.float32(1) / powers).view(np.int32))

    def test_a_missing_an_extra_and_a_misshapen_tensor_are_refused_by_name(self):
        edits = {
            "missing": (lambda t: t.pop("layers.1.mlp.up_proj.weight"), "layers.1.mlp.up_proj.weight"),
            "extra": (lambda t: t.update({"layers.1.extra.weight": torch.ones(2)}), "layers.1.extra.weight"),
            "misshapen": (lambda t: t.update({"norm.weight": torch.ones(2)}), "norm.weight"),
        }
        for kind, (edit, name) in edits.items():
            with self.subTest(kind=kind):
                directory = make_checkpoint(self.folder / kind)
                tensors = load_file(directory / "model.safetensors")
                edit(tensors)
                save_file(tensors, directory / "model.safetensors")
                self.refused(directory, "does not fit the upstream model", name)

    def test_nan_weights_are_refused_by_stage(self):
        directory = self.checkpoint("plain")
        tensors = load_file(directory / "model.safetensors")
        tensors["layers.0.mlp.up_proj.weight"][3, 3] = float("nan")
        save_file(tensors, directory / "model.safetensors")
        self.refused(directory, "stage layers.0.mlp.up", "NaN")

    def test_a_reference_that_gains_a_float32_operation_is_not_recorded(self):
        original = Qwen3RMSNorm.forward
        with mock.patch.object(Qwen3RMSNorm, "forward", lambda norm, x: original(norm, x) + torch.zeros(1)):
            code, said = self.generate(self.checkpoint("plain"))
        self.assertEqual(code, 4)
        self.assertIn("not float64 throughout: aten.zeros", said)
        self.assertFalse((self.folder / "out.h5").exists())

    def test_a_reference_that_changes_its_number_of_casts_is_not_recorded(self):
        with mock.patch.object(Qwen3RMSNorm, "forward", lambda norm, x: norm.weight * x):
            code, said = self.generate(self.checkpoint("plain"))
        self.assertEqual(code, 4)
        self.assertIn("expected 14 lifted casts and 2 lifted angles, found 0 and 2", said)

    def test_missing_weights_are_refused(self):
        directory = self.checkpoint("plain")
        (directory / "model.safetensors").unlink()
        self.refused(directory, "model.safetensors", "cannot be read")


class TheConfig(OracleTest):
    def test_what_upstream_would_guess_or_drop_is_refused(self):
        taps = {"mask_token_id": 200}
        refusals = {
            "architecture": ({"architectures": ["LlamaForCausalLMEagle3"]}, "architectures"),
            "second-family": ({"architectures": ["DFlash2DraftModel"], "projector_type": "dspark"}, "projector_type"),
            "projector": ({"projector_type": "domino"}, "domino"),
            "taps": ({"dflash_config": taps}, '"target_layer_ids"'),
            "theta": ({"rope_theta": None}, '"rope_theta"'),
            "rope": ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
            "two-ropes": ({"rope_parameters": YARN, "rope_scaling": LLAMA3}, ", but not in rope_"),
            "nested": ({**SLIDING, "rope_theta": None, "rope_parameters": UNEQUAL}, "rope_parameters differs between"),
            "theta-twice": ({"rope_theta": 5000, "rope_parameters": YARN}, '"rope_theta" in the top level is 5000'),
            "window-off": ({**SLIDING, "use_sliding_window": False}, '"use_sliding_window" is false'),
            "window-missing": ({**SLIDING, "sliding_window": None}, '"sliding_window" is missing'),
            "implied": ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, 'no "layer_types"'),
            "activation": ({"hidden_act": "gelu"}, "hidden_act"),
            "unread": ({"query_pre_attn_scalar": 256}, '"query_pre_attn_scalar" in the top level'),
            "partial": ({"partial_rotary_factor": 0.5}, "Readers disagree"),
        }  # fmt: skip
        for name, (changes, phrase) in refusals.items():
            with self.subTest(name=name):
                self.refused(make_checkpoint(self.folder / name, **changes), phrase)

    def test_a_key_given_twice_is_refused(self):
        directory = self.checkpoint("plain")
        path = directory / "config.json"
        path.write_text(path.read_text().replace('"head_dim": 16,', '"head_dim": 16, "head_dim": 16,'))
        self.refused(directory, 'the key "head_dim" appears twice')

    def test_what_had_to_be_supplied_is_recorded(self):
        directory = self.checkpoint("causal", num_target_layers=None, head_dim=None, hidden_size=96)
        self.assertEqual(self.generate(directory, context=40)[0], 0)
        geometry, provenance, _, _ = read_oracle(self.folder / "out.h5")
        for phrase in ("num_target_layers is absent", "head_dim is absent"):
            self.assertTrue(any(phrase in note for note in provenance["adapters"]), phrase)
        self.assertEqual(geometry["sliding_window"], [16, 0, 16])
        self.assertEqual(geometry["is_causal"], [True, False, True])
        self.assertEqual(geometry["head_dim"], 16)

    def test_upstream_takes_every_config_that_the_rules_take(self):
        """The list of test_config_rules.py again, through to upstream's config class and what reached it."""
        path = self.folder / "config.json"
        for file in sorted(RULES.glob("*.json")):
            for number, case in enumerate(json.loads(file.read_text()).get("cases", [])):
                path.write_bytes(edited(case))
                code = "accepted"
                try:
                    reference.open_checkpoint(self.folder)
                except Refused as refusal:
                    code = refusal.code or str(refusal)
                with self.subTest(file=file.name, number=number, case=case):
                    self.assertEqual(code, case["code"])

    def test_keys_reach_upstream_from_wherever_they_stand(self):
        """One drafter, its keys written as other projects write them: the same geometry and the same values."""
        self.assertEqual(self.generate(self.checkpoint("windowed"), context=40)[0], 0)
        geometry, _, _, stages = read_oracle(self.folder / "out.h5")
        path = self.folder / "windowed" / "config.json"
        plain = json.loads(path.read_text())
        kept = {name: plain.pop(name) for name in ("architectures", "model_type", "dflash_config")}
        nested = {**kept, "dflash_config": {**kept["dflash_config"], **plain}}
        floats = {**kept, **plain, "hidden_size": 64.0, "sliding_window": 16.0, "pad_token_id": "none", "use_cache": 3,
                  "dflash_config": {"mask_token_id": 200.0, "target_layer_ids": [1.0, 4, 9]}}  # fmt: skip
        both = {**kept, **plain, "rope_scaling": {"type": "default", "rope_theta": 1000000},
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}  # fmt: skip
        for name, config in (("nested", nested), ("floats", floats), ("both", both)):
            with self.subTest(name=name):
                path.write_text(json.dumps(config))
                code, said = self.generate(self.folder / "windowed", context=40)
                self.assertEqual(code, 0, said)
                found = read_oracle(self.folder / "out.h5")
                self.assertEqual(found[0], geometry)
                np.testing.assert_array_equal(found[3]["float64"]["final"], stages["float64"]["final"])

    def test_use_swa_without_layer_types_makes_every_layer_slide(self):
        swa = {"mask_token_id": 200, "target_layer_ids": [1, 4, 9], "use_swa": True, "swa_window_size": 16}
        directory = make_checkpoint(self.folder / "swa", is_causal=False, dflash_config=swa)
        code, said = self.generate(directory, context=40)
        self.assertEqual(code, 0, said)
        geometry = read_oracle(self.folder / "out.h5")[0]
        self.assertEqual(geometry["sliding_window"], [16, 16, 16])
        self.assertEqual(geometry["is_causal"], [False, False, False])

    def test_a_null_is_an_absent_key(self):
        directory = self.checkpoint("plain", dflash_config=None, mask_token_id=200, target_layer_ids=[1, 4, 9])
        path = directory / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "dflash_config": None, "layer_types": None}))
        self.assertEqual(self.generate(directory)[0], 0)

    def test_equal_rope_entries_per_layer_type_are_one(self):
        nested = {"full_attention": YARN, "sliding_attention": YARN}
        directory = self.checkpoint("causal", rope_theta=None, rope_parameters=nested)
        self.assertEqual(self.generate(directory, context=40)[0], 0)
        rope = read_oracle(self.folder / "out.h5")[0]["rope"]
        self.assertEqual(rope["type"], "yarn")
        self.assertEqual(rope["attention_scaling"], 0.1 * math.log(16) + 1)


class TheFile(OracleTest):
    def test_two_runs_write_the_same_bytes(self):
        checkpoint = self.checkpoint("conv-2")
        digests = set()
        for folder in ("one", "two"):
            self.assertEqual(self.generate(checkpoint, out=f"{folder}/out.h5", context=40)[0], 0)
            digests.add(hashlib.sha256((self.folder / folder / "out.h5").read_bytes()).hexdigest())
        self.assertEqual(len(digests), 1)

    def test_every_dataset_is_as_the_format_page_says(self):
        self.assertEqual(self.generate(self.checkpoint("conv-3"), "--sample-stride", 7)[0], 0)
        self.assertEqual(self.generate(self.folder / "conv-3", out="full.h5")[0], 0)
        with h5py.File(self.folder / "out.h5") as file, h5py.File(self.folder / "full.h5") as full:
            self.assertEqual(dict(file.attrs), {"schema": b"dflash-parity", "schema_version": 2, "kind": b"oracle"})
            names = [set(file["stages"][run]) for run in ("float64", "float32", "bfloat16")]
            self.assertEqual(names[0], set(generate.stage_names(LAYERS, "dflash2", [])))
            self.assertTrue(names[0] == names[1] == names[2])
            datasets = []
            file.visititems(lambda name, item: datasets.append(name) if isinstance(item, h5py.Dataset) else None)
            for name in datasets:
                group, _, stage = name.partition("/")
                with self.subTest(name=name):
                    if group in ("rows", "sketch"):
                        self.check_companion(file, name, full)
                    else:
                        self.check_dataset(file[name], full[name])
            sampled = {name for name, item in file["stages/float64"].items() if "sample_stride" in item.attrs}
            self.assertTrue(sampled)
            self.assertEqual(set(file["rows/float64"]), sampled)
            for run in ("float64", "float32", "bfloat16"):
                self.assertEqual(set(file["sketch"][run]), sampled)

    def check_companion(self, file, name, full):
        """Rows stored whole, and sketches, against the oracle that stores the stage whole."""
        group, run, stage = name.split("/")
        dataset, whole = file[name], full[f"stages/{run}/{stage}"]
        self.assertTrue(dataset.fletcher32)
        values = whole[()]
        if whole.attrs["logical_dtype"] == b"bfloat16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        width = math.prod(values.shape[2:] if stage.startswith("kv.") else values.shape[1:])
        rows = values.reshape(-1, width).astype(np.float64)
        if group == "rows":
            np.testing.assert_array_equal(dataset[()].reshape(-1, width), rows[dataset.attrs["rows"]])
            return
        found = dataset[()]
        self.assertEqual(found.shape, (len(rows), PROJECTIONS + 1))
        expected = sketch(stage, int(file["sketch"].attrs["seed"]), torch.from_numpy(values))
        np.testing.assert_allclose(found, expected, rtol=0 if run != "bfloat16" else 1e-6, atol=1e-6)
        np.testing.assert_allclose(found[:, -1], np.sqrt((rows**2).mean(axis=1)), rtol=1e-6)

    def test_the_signs_of_a_sketch_are_those_of_the_format_page(self):
        self.assertEqual([hex(word) for word in words(0x273159110238FEC5, 0, 2).tolist()],
                         ["0x951c890536dece5e", "0x4b73b744ef20617c"])  # fmt: skip
        one = sketch("final", 1, torch.eye(70, dtype=torch.float64))[:, :PROJECTIONS]
        self.assertEqual(set(np.abs(one).reshape(-1)), {1.0})
        self.assertLess(abs(one.mean()), 0.25)

    def test_a_large_dataset_is_cut_into_blocks_of_rows(self):
        with mock.patch.object(h5out, "CHUNK_BYTES", 100), h5out.oracle_file(self.folder / "blocks.h5") as writer:
            writer.tensor("stages/float64/final", torch.arange(70, dtype=torch.float64).reshape(10, 7))
            writer.tensor("stages/float64/kv.k", torch.ones(100, dtype=torch.float64))
        with h5py.File(self.folder / "blocks.h5") as file:
            self.assertEqual(file["stages/float64/final"].chunks, (2, 7))
            self.assertEqual(file["stages/float64/kv.k"].chunks, (13,))

    def check_dataset(self, dataset, full):
        stored = dataset[()]
        raw = stored if isinstance(stored, bytes) else stored.tobytes()
        self.assertEqual(dataset.attrs["sha256"].decode(), hashlib.sha256(raw).hexdigest())
        if isinstance(stored, bytes):
            return
        widths = {b"float64": "<f8", b"float32": "<f4", b"bfloat16": "<u2", b"int32": "<i4"}
        self.assertEqual(dataset.dtype, np.dtype(widths[dataset.attrs["logical_dtype"]]))
        self.assertTrue(dataset.fletcher32)
        self.assertIsNone(dataset.compression)
        self.assertEqual(dataset.chunks, dataset.shape)
        if "sample_stride" in dataset.attrs:
            offset, stride = dataset.attrs["sample_offset"], dataset.attrs["sample_stride"]
            self.assertEqual(tuple(dataset.attrs["full_shape"]), full.shape)
            storage = Storage(stride=7, full_stages=list(FULL_STAGES), seed=5, context=24)
            self.assertTrue(storage.sampled(dataset.name.rsplit("/", 1)[1], list(full.shape)))
            np.testing.assert_array_equal(stored, full[()].reshape(-1)[offset::stride])
        else:
            np.testing.assert_array_equal(stored, full[()])

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self):
        checkpoint = self.checkpoint("plain")
        (self.folder / "out.h5").write_bytes(b"old")
        with mock.patch.object(h5out.OracleWriter, "tensor", side_effect=OSError(28, "No space left on device")):
            code, said = self.generate(checkpoint)
        self.assertEqual(code, 4)
        self.assertIn("No space left on device", said)
        self.assertEqual((self.folder / "out.h5").read_bytes(), b"old")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["out.h5", "plain"])

    def test_no_path_of_this_machine_is_recorded(self):
        self.generate(self.checkpoint("plain"))
        provenance = read_oracle(self.folder / "out.h5")[1]
        self.assertNotIn(str(self.folder), json.dumps(provenance))
        self.assertEqual(set(provenance), {"generator", "command", "packages", "reference", "config_sha256", "tensors",
                                           "request", "seed", "adapters", "float32_orders"})  # fmt: skip


if __name__ == "__main__":
    unittest.main()
