"""Reads the case list (fixtures/cases.json): which oracles there are and what each is made of.

A case's recipe for weights (`synth`) and `stored` belong to the harness and are not looked at here.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path

from inputs import PROFILES
from precision import MODES
from reference import read_json
from refusal import Refused
from spacing import check_gaps

CASE_KEYS = {
    "name": str,
    "checkpoint": str,
    "oracle": str,
    "context": int,
    "start": int,
    "input_seed": int,
    "input_profile": str,
    "sample_stride": int,
}
HARNESS_KEYS = ("synth", "stored")
LIST_KEYS = ("schema", "root", "manifest", "vectors", "cases")


def check_case(case, path: Path) -> None:
    name = case.get("name") if isinstance(case, dict) else repr(case)
    where = f"{path}: case {name}"
    for key, kind in CASE_KEYS.items():
        value = case.get(key) if isinstance(case, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Refused(f"{where}: {key} is {value!r}, expected {kind.__name__}.")
    unknown = sorted(set(case) - set(CASE_KEYS) - set(HARNESS_KEYS) - {"precision", "full_stages", "lm_head", "gaps"})
    if unknown:
        raise Refused(f"{where}: the key {unknown[0]!r} is not known. Correct its spelling or remove it.")
    if case["input_profile"] not in PROFILES:
        raise Refused(
            f"{where}: input_profile is {case['input_profile']!r}, expected one of {', '.join(PROFILES)}."
        )
    if case.get("precision", "stored") not in MODES:
        raise Refused(f"{where}: precision is {case['precision']!r}, expected one of {', '.join(MODES)}.")
    if not isinstance(case.get("lm_head", "file"), str) or case.get("lm_head") == "":
        raise Refused(f"{where}: lm_head is {case['lm_head']!r}, expected FILE or FILE:TENSOR.")
    check_gaps(case.get("gaps", []), where)
    full = case.get("full_stages", [])
    if not isinstance(full, list) or not all(isinstance(glob, str) and "," not in glob for glob in full):
        raise Refused(f"{where}: full_stages is {full!r}, expected a list of stage names or globs.")


def read_list(path: Path) -> dict:
    listing, _ = read_json(path)
    if listing.get("schema") != 1 or not isinstance(listing.get("cases"), list):
        raise Refused(f"{path}: expected an object with schema 1 and a list of cases.")
    unknown = sorted(set(listing) - set(LIST_KEYS))
    bad = unknown + [key for key in ("root", "manifest") if not isinstance(listing.get(key, ""), str)]
    if bad:
        raise Refused(f"{path}: {bad[0]!r} is not known, or no string; expected {', '.join(LIST_KEYS)}.")
    for case in listing["cases"]:
        check_case(case, path)
    return listing


def root_of(path: Path, listing: dict) -> Path:
    """The folder that the paths of a list start from: its root, from its own folder, or the working directory."""
    return (path.parent / listing["root"]).resolve() if "root" in listing else Path.cwd()


def read_cases(path: Path, only: str | None) -> list[dict]:
    listing = read_list(path)
    return [case for case in listing["cases"] if only is None or fnmatch.fnmatchcase(case["name"], only)]
