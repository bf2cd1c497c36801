#!/usr/bin/env python3
"""The rules of configs, on the list that the C reader is tested on: fixtures/config-rules/*.json.

A case is a text, bytes in hexadecimal, or a base with edits; it must be accepted, or be refused with its code and with
the names of the keys at fault. Needs no reference package: python oracles/test_config_rules.py
"""

from __future__ import annotations

import json
import unittest
from pathlib import Path

import config_rules
import config_text
from config_keys import ROWS
from refusal import Refused

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "fixtures" / "config-rules"
BASES = json.loads((RULES / "bases.json").read_text())


def edited(case: dict) -> bytes:
    """The bytes of a case. Values of edits are JSON as text, so that 1e999 and the last digit survive; null deletes."""
    if "text" in case:
        return case["text"].encode()
    if "bytes" in case:
        return bytes.fromhex(case["bytes"])
    root, raw = json.loads(json.dumps(BASES[case["base"]])), {}
    for path, value in case["set"].items():
        section, _, name = path.rpartition(".")
        entries = root.setdefault(section, {}) if section else root
        entries.pop(name, None)
        if value is not None:
            mark = f"@{len(raw)}@"
            entries[name], raw[json.dumps(mark)] = mark, value
    text = json.dumps(root)
    for mark, value in raw.items():
        text = text.replace(mark, value)
    return text.encode()


def verdict(data: bytes) -> tuple[str, str]:
    try:
        config_rules.check(config_text.parse(data, "test config"), "test config")
    except Refused as refusal:
        return refusal.code, str(refusal)
    return "accepted", ""


class TheRules(unittest.TestCase):
    def test_every_case_of_the_list_has_its_verdict(self):
        count = 0
        for path in sorted(RULES.glob("*.json")):
            for number, case in enumerate(json.loads(path.read_text()).get("cases", [])):
                with self.subTest(file=path.name, number=number, case=case):
                    code, message = verdict(edited(case))
                    self.assertEqual(code, case["code"], message)
                    for name in [*case.get("names", []), *([case["key"]] if "key" in case else [])]:
                        self.assertIn(f'"{name}"', message)
                count += 1
        self.assertGreater(count, 300)

    def test_every_stored_config_is_accepted(self):
        stored = sorted(ROOT.glob("fixtures/*/*/config.json"))
        self.assertGreater(len(stored), 30)
        for path in stored:
            with self.subTest(path=path):
                self.assertEqual(verdict(path.read_bytes()), ("accepted", ""))

    def test_the_table_names_every_key_once_in_a_place(self):
        seen = set()
        for row in ROWS:
            for place in row.places:
                self.assertNotIn((row.name, place), seen)
                seen.add((row.name, place))


if __name__ == "__main__":
    unittest.main()
