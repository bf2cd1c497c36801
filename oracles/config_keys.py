"""Which keys a config.json may and must have, and how one of them is found.

The table of keys is that of the C reader, impl/config/config_key_rows.h, read as text; its first comment says what a row is.
A key may stand at the top level or in dflash_config, some of them in rope_parameters or rope_scaling; null is absent.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from refusal import Refused

TABLE = Path(__file__).resolve().parent.parent / "impl" / "config" / "config_key_rows.h"
TOP, DFLASH, PARAMETERS, SCALING = "the top level", "dflash_config", "rope_parameters", "rope_scaling"
PLACES = {
    "TOP": (TOP,),
    "MODEL": (TOP, DFLASH),
    "ROPE": (PARAMETERS, SCALING),
    "ANY": (TOP, DFLASH, PARAMETERS, SCALING),
}
FAMILIES = ("dflash", "dspark", "dflash2")
ROPE_TYPES = ("default", "linear", "yarn", "llama3")
MISSING, UNREAD, FOREIGN, CONFLICT = (
    "config.key.missing", "config.key.unread", "config.family.ambiguous", "config.key.conflict",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    kind: str  # READ, IGNORED or ONLY
    name: str
    places: tuple[str, ...]
    readers: frozenset[str]  # families and rope types
    needed: frozenset[str]
    only: object = None  # the one value that keeps the arithmetic


def actors(words: str) -> frozenset[str]:
    names = {word.strip().lower() for word in words.split("|")} - {"nobody"}
    return frozenset(FAMILIES if names == {"all"} else names)


def read_rows() -> list[Row]:
    text = re.sub(r"/\*.*?\*/", "", TABLE.read_text(), flags=re.DOTALL)
    rows = []
    for line in filter(str.strip, text.splitlines()):
        kind, inside = re.fullmatch(r"(READ|IGNORED|ONLY)\((.*)\)", line).groups()
        places, name, *rest = (part.strip() for part in inside.split(","))
        readers = actors(rest[0]) if kind == "READ" else actors("ALL")
        needed = actors(rest[1]) if kind == "READ" else frozenset()
        only = json.loads(rest[0]) if kind == "ONLY" else None
        rows.append(Row(kind, name, PLACES[places], readers, needed, only))
    return rows


ROWS = read_rows()


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(a, b) -> bool:
    """Numbers as doubles; everything else of one type and value."""
    if is_number(a) and is_number(b):
        return float(a) == float(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[name], b[name]) for name in a)
    return a == b


@dataclass(frozen=True)
class Found:
    value: object
    name: str
    place: str


@dataclass
class Config:
    """A parsed config.json and the objects in which its keys are looked for."""

    where: Path | str
    objects: dict[str, dict] = field(default_factory=dict)
    integers: dict[str, int] = field(default_factory=dict)  # those that were read, by the spelling that was found

    def refuse(self, code: str, message: str):
        raise Refused(f"{self.where}: {message}", code)

    def section(self, name: str) -> dict | None:
        value = self.objects[TOP].get(name)
        if value is not None and not isinstance(value, dict):
            self.refuse("config.key.type", f'"{name}" in {TOP} must be an object or null, but it is {value!r}.')
        return value

    def find(self, *names: str, places: str = "MODEL") -> Found | None:
        """The one value of a key (the first name) or of another spelling of it."""
        found = None
        for place in PLACES[places]:
            for name in names:
                value = self.objects.get(place, {}).get(name)
                if value is None:
                    continue
                if found is not None and not same(found.value, value):
                    self.refuse(
                        CONFLICT,
                        f'"{found.name}" in {found.place} is {found.value!r}, but "{name}" in {place} is {value!r}. One '
                        "fact may be written in several places only with one value; keep the one that the checkpoint "
                        "was trained with.",
                    )
                found = found or Found(value, name, place)
        return found

    def wrong(self, found: Found, expected: str):
        self.refuse(
            "config.key.type", f'"{found.name}" in {found.place} must be {expected}, but it is {found.value!r}.'
        )

    def whole(self, found: Found, value, low: int, high: int) -> int:
        found = Found(value, found.name, found.place)
        if not is_number(value) or not math.isfinite(value) or value != math.floor(value):
            self.wrong(found, "an integer")
        if not low <= value <= high:
            self.refuse(
                "config.key.range",
                f'"{found.name}" in {found.place} must be an integer from {low} to {high}, but it is {value!r}.',
            )
        return int(value)

    def integer(self, *names: str, low: int, high: int, places: str = "MODEL") -> int | None:
        found = self.find(*names, places=places)
        if found is None:
            return None
        self.integers[found.name] = self.whole(found, found.value, low, high)
        return self.integers[found.name]

    def number(self, name: str, low: float, high: float, *, above: bool = False, places: str = "MODEL") -> float | None:
        found = self.find(name, places=places)
        if found is None:
            return None
        if not is_number(found.value):
            self.wrong(found, "a number")
        value = float(found.value)
        if not math.isfinite(value) or not low <= value <= high or (above and value == low):
            self.refuse(
                "config.key.range",
                f'"{name}" in {found.place} must be a finite number {"above" if above else "of at least"} {low:g} and at '
                f"most {high:g}, but it is {value!r}.",
            )
        return value

    def boolean(self, *names: str, places: str = "MODEL") -> bool | None:
        found = self.find(*names, places=places)
        if found is not None and not isinstance(found.value, bool):
            self.wrong(found, "true or false")
        return None if found is None else found.value

    def string(self, *names: str, places: str = "MODEL") -> str | None:
        found = self.find(*names, places=places)
        if found is not None and not isinstance(found.value, str):
            self.wrong(found, "a string")
        return None if found is None else found.value

    def readers(self, family: str) -> set[str]:
        """The family and the rope type; every type where none is named that is known, which is refused elsewhere."""
        try:
            kind = self.string("rope_type", "type", places="ROPE")
            if kind is None and self.find("factor", places="ROPE") is None:
                kind = "default"
        except Refused:
            kind = None
        return {family, kind} if kind in ROPE_TYPES else {family, *ROPE_TYPES}


def check_missing(config: Config, family: str) -> None:
    readers = config.readers(family)
    absent = [
        row
        for row in ROWS
        if row.needed & readers
        and not (row.needed <= set(ROPE_TYPES) and len(readers) > 2)
        and all(config.objects.get(place, {}).get(row.name) is None for place in row.places)
    ]
    if absent:
        listed = ", ".join(f'"{row.name}" ({", ".join(row.places)})' for row in absent)
        config.refuse(
            MISSING,
            f"required keys are missing or null: {listed}. In parentheses is where they are looked for. Their values are "
            "never guessed; add them to the config as the checkpoint was trained.",
        )


def check_unread(config: Config, family: str) -> None:
    readers, faults = config.readers(family), []
    for place, entries in config.objects.items():
        for name, value in entries.items():
            row = next((row for row in ROWS if row.name == name and place in row.places), None)
            if value is None:
                continue
            if row is None or not (row.readers & set(FAMILIES) or row.readers & readers):
                faults.append(f'"{name}" in {place}')
            elif row.only is not None and not same(row.only, value):
                faults.append(f'"{name}" in {place} is {value!r} (only {row.only!r} changes nothing)')
    if faults:
        config.refuse(
            UNREAD,
            f"the config has keys that nothing here reads, and that may change what the drafter computes: "
            f"{', '.join(faults)}. A drafter that needs one of them is not supported, and without the key the config "
            "would describe another drafter: leave it in the config. A key that is known to change no arithmetic "
            f"belongs into the table impl/{TABLE.name}.",
        )


def check_foreign(config: Config, family: str) -> None:
    faults = []
    for row in ROWS:
        if row.readers & set(FAMILIES) and family not in row.readers:
            found = config.find(row.name)
            nothing = found is None or found.value is False or found.value == "none"
            if not nothing and not (is_number(found.value) and found.value == 0):
                faults.append(f'"{row.name}" in {found.place} is {found.value!r} ({", ".join(row.readers)})')
    if faults:
        config.refuse(
            FOREIGN,
            f"the config names a {family} drafter, but has keys of another family, in parentheses: {', '.join(faults)}. Find "
            "out as which family the checkpoint was trained; do not delete the keys of a part that it was trained with.",
        )
