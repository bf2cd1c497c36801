"""Strict JSON: what every reader of a config.json understands alike, or a refusal.

The rules are those of the C reader (impl/config/config_json.c), and fixtures/config-rules/text.json tests both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from refusal import Refused

LIMIT = 16 << 20  # bytes
DEPTH = 1000  # of arrays and objects
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
OTHER = re.compile(r"[{}\[\]:, \t\r\n]|true|false|null")


def check_tokens(text: str, where: Path | str) -> None:
    """Numbers, strings and words as JSON writes them. Their order is left to the parser."""
    at, depth = 0, 0
    while at < len(text):
        found = OTHER.match(text, at) or STRING.match(text, at) or NUMBER.match(text, at)
        if found is None or (found.re is NUMBER and text[found.end() : found.end() + 1] not in ("", *"}], \t\r\n")):
            raise Refused(f"{where}: the character at {at} is not JSON. Write strict JSON.", "config.json.syntax")
        depth += (found.group() in "{[") - (found.group() in "}]")
        if depth > DEPTH:
            raise Refused(f"{where}: more than {DEPTH} levels are nested.", "config.json.syntax")
        at = found.end()


def unique(where):
    def pairs_of(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise Refused(
                f'{where}: the key "{twice[0]}" appears twice in one object. Readers differ in which one they take; keep '
                "the one that the checkpoint was trained with.",
                "config.json.duplicate",
            )
        return dict(pairs)

    return pairs_of


def parse_integer(text: str) -> int | float:
    return int(text) if len(text) < 19 else float(text)


def check_strings(value, where) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            check_strings(name, where)
            check_strings(item, where)
    elif isinstance(value, list):
        for item in value:
            check_strings(item, where)
    elif isinstance(value, str):
        if "\0" in value:
            raise Refused(f"{where}: there is an escaped NUL character in a string.", "config.json.nul")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise Refused(f"{where}: half of a surrogate pair is escaped in a string.", "config.json.syntax")


def parse(data: bytes, where: Path | str) -> dict:
    """The one object that the bytes hold."""
    if len(data) > LIMIT:
        raise Refused(f"{where}: the file has {len(data)} bytes, and {LIMIT} are allowed.", "config.file.size")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{where}: byte {error.start} is not part of valid UTF-8.", "config.json.encoding") from error
    if "\0" in text:
        raise Refused(f"{where}: there is a NUL character.", "config.json.nul")
    check_tokens(text, where)
    try:
        decoder = json.JSONDecoder(object_pairs_hook=unique(where), parse_int=parse_integer)
        start = len(text) - len(text.lstrip(" \t\r\n"))
        value, end = decoder.raw_decode(text, start)
        check_strings(value, where)
    except Refused:
        raise
    except (ValueError, RecursionError) as error:
        raise Refused(f"{where}: is not JSON ({error}).", "config.json.syntax") from error
    if text[end:].strip(" \t\r\n"):
        raise Refused(f"{where}: the JSON value ends at {end}, but the file goes on.", "config.json.trailing")
    if not isinstance(value, dict):
        raise Refused(f"{where}: expected a JSON object, found {type(value).__name__}.", "config.json.shape")
    return value
