"""The header of a safetensors file, by the rules of the reader that is judged (impl/weights/safetensors*.c).

One file must be taken or refused by both sides alike, so the rules are written out here instead of left to the
safetensors package, which takes some files that the other side refuses. Sizes, offsets and gaps are checked for every
tensor; dtype, rank and alignment only for those that are read.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from files import open_regular
from refusal import Refused

HEADER_MAX = 100_000_000
NAME_MAX = 255
RANK_MAX = 8  # of any tensor
WEIGHT_RANK_MAX = 4  # of one that is read
LARGEST_EXACT = 2**53 - 1

BITS = {
    "F64": 64, "C64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
WEIGHTS = ("F32", "F16", "BF16")  # what a tensor that is read may be


@dataclass(frozen=True)
class Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int  # of its first byte in the file
    size: int  # bytes


class Pairs(list):
    """A JSON object with every key that was written, twice or not."""


def no_number(text: str):
    raise ValueError(f"the number {text} is no plain integer")


def exact(value, least: int = 0) -> bool:
    return type(value) is int and least <= value <= LARGEST_EXACT


def read_header(path: Path, expected: str) -> dict[str, Entry]:
    """The tensors by name, in the order of their data."""
    with open_regular(path, expected) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(HEADER_MAX, size - 8):
            raise Refused(f"{path}: has no safetensors header of 2 to {HEADER_MAX} bytes inside it. Expected {expected}.")
        text = stream.read(length)
    try:
        if text[:1] != b"{":
            raise ValueError("it does not begin with a brace")
        header = json.loads(text.decode(), object_pairs_hook=Pairs, parse_float=no_number, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: its header is not a safetensors header ({error}).") from error
    entries: dict[str, Entry] = {}
    metadata = 0
    for name, item in header:
        if name == "__metadata__":
            metadata += 1
            check_metadata(item, metadata, path)
            continue
        entry = read_entry(name, item, 8 + length, size, path)
        if name in entries:
            raise Refused(f"{path}: the header has two entries named {name}. Export the file again.")
        entries[name] = entry
    ordered = sorted(entries.values(), key=lambda entry: (entry.begin, entry.size))
    reached = 8 + length
    for entry in ordered:
        if entry.begin != reached:
            raise Refused(f"{path}: tensor {entry.name} begins at byte {entry.begin}, where the one before it ends at "
                          f"{reached}; expected neither a gap nor an overlap. Export the file again.")  # fmt: skip
        reached += entry.size
    if reached != size:
        raise Refused(f"{path}: its tensors end at byte {reached} of {size}. Export the file again.")
    return {entry.name: entry for entry in ordered}


def check_metadata(item, count: int, path: Path) -> None:
    strings = isinstance(item, Pairs) and all(isinstance(value, str) for _, value in item)
    if not strings or count > 1:
        raise Refused(f"{path}: __metadata__ is not one object of strings. Export the file again.")
    for word in (word for pair in item for word in pair):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise Refused(f"{path}: its header is not a safetensors header (a character that is none).")


def read_entry(name: str, item, data: int, size: int, path: Path) -> Entry:
    where = f"{path}: the header's entry {ascii(name)[:60]}"
    if not (1 <= len(name) <= NAME_MAX and name.isascii() and name.isprintable()):
        raise Refused(f"{where} is malformed: its name cannot be a tensor's.")
    if not isinstance(item, Pairs) or sorted(key for key, _ in item) != ["data_offsets", "dtype", "shape"]:
        raise Refused(f"{where} is malformed: expected exactly dtype, shape and data_offsets.")
    fields = dict(item)
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or isinstance(shape, Pairs) or not isinstance(shape, list):
        raise Refused(f"{where} is malformed: expected a string as dtype and an array as shape.")
    if dtype not in BITS:
        raise Refused(f"{where} has dtype {ascii(dtype)[:60]}, which the safetensors format does not know.")
    if len(shape) > RANK_MAX or not all(exact(dim) for dim in shape):
        raise Refused(f"{where} has the shape {str(shape)[:120]}; expected at most {RANK_MAX} integers from 0 to 2^53 - 1.")
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8:
        raise Refused(f"{where} takes {bits} bits; expected whole bytes.")
    if isinstance(offsets, Pairs) or not isinstance(offsets, list) or len(offsets) != 2 or not all(map(exact, offsets)):
        raise Refused(f"{where} is malformed: expected two integers as data_offsets.")
    begin, end = offsets
    if not begin <= end <= size - data or end - begin != bits // 8:
        raise Refused(f"{where} claims the bytes [{begin}, {end}) of {size - data}; {dtype}{shape} needs {bits // 8}.")
    return Entry(name, dtype, tuple(shape), data + begin, bits // 8)


def check_usable(entry: Entry, path: Path) -> None:
    """Whether a tensor can be read as a weight."""
    shape = list(entry.shape)
    if entry.dtype not in WEIGHTS:
        raise Refused(f"{path}: tensor {entry.name} is {entry.dtype}; a tensor that is read is F32, F16 or BF16.")
    if not 1 <= len(shape) <= WEIGHT_RANK_MAX or 0 in shape:
        raise Refused(f"{path}: tensor {entry.name} has the shape {shape}; expected 1 to {WEIGHT_RANK_MAX} dimensions, "
                      "none of them 0.")  # fmt: skip
    if entry.begin % (BITS[entry.dtype] // 8):
        raise Refused(f"{path}: tensor {entry.name} ({entry.dtype}) starts at byte {entry.begin}, which is no multiple of "
                      "its element's size. Save the file again with a current safetensors library.")  # fmt: skip
