#!/usr/bin/env python3
"""Self-tests of the output head and of the container that it comes in: both sides, generate.py's reader and
`dflash-parity check`, take or refuse the same files, and take the same tensor of them.

Run after `make build`, with the interpreter that runs generate.py: python oracles/test_head.py
DFLASH_PARITY names another program than build/dflash-parity.
"""

from __future__ import annotations

import generate  # first: it settles how torch is imported

import json
import os
import subprocess
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from files import open_regular
from head import find_head, split_source
from refusal import Refused
from safetensors_file import check_usable, read_header
from test_oracles import OracleTest, read_oracle
from test_support import make_checkpoint

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("DFLASH_PARITY", str(ROOT / "build" / "dflash-parity"))
CASE = ROOT / "fixtures" / "small" / "tiny-dflash2"
ORACLE = ROOT / "oracles" / "tiny-dflash2.h5"

H, E = "lm_head.weight", "embed_tokens.weight"
# names of tensors that all hold the head's bytes, and the one that is taken; None: refused
NAMES = [
    ([H], H),
    ([f"model.{E}", H], H),
    ([f"language_model.{H}", H], H),
    ([f"language_model.{H}", f"language_model.model.{E}"], f"language_model.{H}"),
    ([f"model.language_model.{H}", "model.visual.x"], f"model.language_model.{H}"),
    ([f"model.{H}", E], f"model.{H}"),
    ([f"thinker.{H}", f"thinker.model.{E}"], f"thinker.{H}"),
    (["model.norm.weight", f"model.{E}"], f"model.{E}"),
    ([E], E),
    ([f"model.language_model.{E}"], f"model.language_model.{E}"),
    ([f"my_{H}", f"model.{E}"], f"model.{E}"),
    ([f"language_model.{H}", f"thinker.{H}"], None),
    ([f"model.{E}", E], None),
    ([f"talker.{H}", f"model.{E}"], None),
    (["lm_head.qweight", f"model.{E}"], None),
    (["output.weight", f"model.{E}"], None),
    (["embed_out.weight", E], None),
    (["model.norm.weight"], None),
    ([H, "lm_head.bias"], None),
]


def entry(dtype: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


class HeadTest(OracleTest):
    def setUp(self):
        super().setUp()
        self.head = load_file(CASE / "model.safetensors")[H]
        self.bytes = self.head.view(torch.uint8).numpy().tobytes()
        self.file = self.folder / "target.safetensors"

    def put(self, header, data: bytes = b"") -> None:
        """A file of this header, an object or its text, and of this data."""
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.file.write_bytes(len(text).to_bytes(8, "little") + text + data)

    def python(self, source: str) -> str:
        """The tensor that is taken, as Tensors.scan finds it."""
        file, tensor = split_source(source)
        entries = read_header(file, "a test's file")
        name = find_head(list(entries), tensor, file)
        check_usable(entries[name], file)
        return name

    def agree(self, source: str, taken: str | None) -> None:
        """Both sides take this tensor, or both refuse."""
        done = subprocess.run([PROGRAM, "check", "--checkpoint", CASE, "--oracle", ORACLE, "--lm-head", source, "-k", "logits"],
                              capture_output=True, text=True, check=False)  # fmt: skip
        if taken is None:
            self.assertEqual(done.returncode, 3, done.stdout)
            with self.assertRaises(Refused):
                self.python(source)
            return
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"\noutput head: {taken} of ", done.stdout)
        self.assertEqual(self.python(source), taken)


class BothSides(HeadTest):
    def test_the_option_is_a_file_or_a_file_and_a_name(self):
        self.assertEqual(split_source("a/b.safetensors"), (Path("a/b.safetensors"), None))
        self.assertEqual(split_source("a:b/c.safetensors:model.x"), (Path("a:b/c.safetensors"), "model.x"))
        self.assertEqual(split_source("a:b/c.safetensors"), (Path("a:b/c.safetensors"), None))
        self.assertEqual(split_source("a.safetensors:"), (Path("a.safetensors:"), None))
        odd = self.folder / "odd:name"
        odd.write_bytes(b"")
        self.assertEqual(split_source(str(odd)), (odd, None))

    def test_they_take_the_same_tensor(self):
        for names, taken in NAMES:
            with self.subTest(names=names):
                save_file({name: self.head.clone() for name in names}, self.file)
                self.agree(str(self.file), taken)

    def test_a_name_decides(self):
        save_file({H: torch.zeros_like(self.head), "odd": self.head, f"talker.{H}": self.head.clone()}, self.file)
        self.agree(f"{self.file}:odd", "odd")
        self.agree(f"{self.file}:talker.{H}", f"talker.{H}")
        self.agree(f"{self.file}:even", None)

    def test_a_file_of_several_is_not_tied(self):
        self.file = self.folder / "model-00001-of-00002.safetensors"
        save_file({f"model.{E}": self.head}, self.file)
        self.agree(str(self.file), None)
        self.agree(f"{self.file}:model.{E}", f"model.{E}")

    def test_neighbours_may_be_anything_that_fits_the_file(self):
        n = len(self.bytes)
        for dtype, shape, size in (
            ("F8_E4M3", [3, 5], 15), ("F8_E5M2", [1], 1), ("F8_E8M0", [7], 7), ("U8", [2, 2], 4), ("I64", [3], 24),
            ("F64", [1, 1], 8), ("C64", [2], 16), ("BOOL", [5], 5), ("F4", [3, 2], 3), ("F6_E2M3", [4], 3),
            ("F32", [], 4), ("BF16", [2, 3, 2, 2, 2], 96), ("F16", [1] * 8, 2), ("F32", [0, 9], 0),
        ):  # fmt: skip
            with self.subTest(dtype=dtype, shape=shape):
                header = {H: entry("BF16", [320, 64], 0, n), "x": entry(dtype, shape, n, n + size)}
                self.put(header, self.bytes + bytes(size))
                self.agree(str(self.file), H)
                header["x"]["data_offsets"][1] += 1
                self.put(header, self.bytes + bytes(size + 1))
                self.agree(str(self.file), None)
                self.agree(f"{self.file}:x", None)

    def test_damaged_files_are_refused_by_both(self):
        n, good = len(self.bytes), entry("BF16", [320, 64], 0, len(self.bytes))
        texts = {
            "a gap": {H: good, "x": entry("U8", [1], n + 1, n + 2)},
            "an overlap": {H: good, "x": entry("U8", [2], n - 1, n + 1)},
            "bytes left over": {H: good, "x": entry("U8", [1], n, n + 1)},
            "an unknown dtype": {H: good, "x": entry("F7", [2], n, n + 2)},
            "a rank of nine": {H: good, "x": entry("U8", [1] * 8 + [2], n, n + 2)},
            "a negative dimension": {H: good, "x": entry("U8", [-2, -1], n, n + 2)},
            "half a byte": {H: good, "x": entry("F4", [3], n, n + 2)},
            "a size that wraps": {H: good, "x": entry("U8", [2**32, 2**32, 2], n, n + 2)},
            "another key": {H: good, "x": entry("U8", [2], n, n + 2) | {"strides": [1]}},
            "no shape": {H: good, "x": {"dtype": "U8", "data_offsets": [n, n + 2]}},
            "a name that is none": {H: good, "x\n": entry("U8", [2], n, n + 2)},
            "metadata of numbers": {H: good, "x": entry("U8", [2], n, n + 2), "__metadata__": {"a": 1}},
            "a fraction": json.dumps({H: good, "x": entry("U8", [2.0], n, n + 2)}).encode(),
            "a true dimension": {H: good, "x": entry("U8", [2, True], n, n + 2)},
            "a name twice": json.dumps({H: good, "x": entry("U8", [2], n, n + 2)}).replace("}}", '}, "x": 1}').encode(),
            "a key twice": json.dumps({H: good, "x": entry("U8", [2], n, n + 2)}).replace("}}", ', "dtype": "U8"}}').encode(),
            "space in front": b" " + json.dumps({H: good, "x": entry("U8", [2], n, n + 2)}).encode(),
            "an array": b"[]",
            "no json": b"{nothing",
            "NaN": json.dumps({H: good, "x": float("nan")}).encode(),
        }
        for name, header in texts.items():
            with self.subTest(name):
                self.put(header, self.bytes + bytes(2))
                self.agree(str(self.file), None)
        self.put({H: good}, self.bytes)
        self.agree(str(self.file), H)
        for keep in (0, 7, 8, 100, self.file.stat().st_size - 1):
            with self.subTest(keep=keep):
                whole = self.file.read_bytes()
                self.file.write_bytes(whole[:keep])
                self.agree(str(self.file), None)
                self.file.write_bytes(whole)

    def test_the_head_itself_is_held_to_the_rules(self):
        n = len(self.bytes)
        for dtype, shape in (("F8_E4M3", [640, 64]), ("I16", [320, 64]), ("BF16", [320 * 64]), ("BF16", [320, 64, 1])):
            with self.subTest(dtype=dtype, shape=shape):
                self.put({H: entry(dtype, shape, 0, n)}, self.bytes)
                done = subprocess.run([PROGRAM, "check", "--checkpoint", CASE, "--oracle", ORACLE, "--lm-head", self.file],
                                      capture_output=True, text=True, check=False)  # fmt: skip
                self.assertEqual(done.returncode, 3, done.stdout)
                checkpoint = self.folder / f"{dtype}-{len(shape)}"
                make_checkpoint(checkpoint)
                self.assertEqual(self.generate(checkpoint, "--lm-head", self.file)[0], 3)
        self.put({"odd": entry("U8", [1], 0, 1), H: entry("BF16", [320, 64], 1, n + 1)}, b"\0" + self.bytes)
        self.agree(str(self.file), None)  # off its alignment

    def test_a_pipe_and_a_folder_are_refused_at_once(self):
        os.mkfifo(self.file)
        for path, word in ((self.file, "a pipe"), (self.folder, "a directory"), (Path("/dev/null"), "a device")):
            with self.subTest(word), self.assertRaisesRegex(Refused, word):
                open_regular(path, "a file")
        checkpoint = make_checkpoint(self.folder / "plain")
        self.assertEqual(self.generate(checkpoint, "--lm-head", self.file)[0], 3)
        for name in ("config.json", "model.safetensors"):
            (checkpoint / name).unlink()
            os.mkfifo(checkpoint / name)
            code, said = self.generate(checkpoint)
            self.assertEqual(code, 3, said)
            self.assertIn("is a pipe", said)


class Generator(HeadTest):
    def test_a_tied_head_is_taken_and_named(self):
        checkpoint = make_checkpoint(self.folder / "headed", lm_head=True)
        code, said = self.generate(checkpoint, out="own.h5")
        self.assertEqual(code, 0, said)
        tensors = load_file(checkpoint / "model.safetensors")
        head = tensors.pop(H)
        save_file(tensors | {f"model.{E}": head.clone()}, checkpoint / "model.safetensors")
        save_file({f"model.{E}": head, "model.layers.0.scale": torch.tensor(2.0)}, self.file)
        # the drafter's own embedding is ignored and never taken
        code, said = self.generate(checkpoint, out="none.h5")
        self.assertEqual(code, 0, said)
        self.assertNotIn("head", read_oracle(self.folder / "none.h5")[1])
        for source in (str(self.file), f"{self.file}:model.{E}"):
            code, said = self.generate(checkpoint, "--lm-head", source)
            self.assertEqual(code, 0, said)
            self.assertIn(f"the output head is model.{E} of {self.file}", said)
            own, tied = (read_oracle(self.folder / name) for name in ("own.h5", "out.h5"))
            self.assertEqual(tied[1]["head"], own[1]["head"] | {"tensor": f"model.{E}"})
            self.assertEqual((tied[3]["float64"]["logits"] == own[3]["float64"]["logits"]).all(), True)
        self.assertIn(f"--lm-head target.safetensors:model.{E}", tied[1]["command"])

    def test_a_common_prefix_of_all_tensors_is_named(self):
        for prefix in ("model.", "_orig_mod.", "module.", "draft_model."):
            with self.subTest(prefix):
                checkpoint = make_checkpoint(self.folder / f"{prefix}d", kernel=2)
                tensors = load_file(checkpoint / "model.safetensors")
                save_file({prefix + name: tensor for name, tensor in tensors.items()}, checkpoint / "model.safetensors")
                self.refused(checkpoint, f"behind the common prefix '{prefix}'", "removeprefix")


if __name__ == "__main__":
    unittest.main()
