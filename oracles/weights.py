"""The tensors of a checkpoint: their records for the provenance, the drafter's state, and where its output head is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from embedding import EMBEDDING
from files import open_regular
from head import OWN, find_head, split_source
from precision import PrecisionError, decoded
from refusal import Refused
from safetensors_file import Entry, check_usable, read_header

IGNORED_PREFIXES = ("embed_tokens.", "lm_head.", "rotary_emb.")  # bare or behind "model."
CODEBOOKS = ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook")


@dataclass
class Tensors:
    """The tensors of model.safetensors that the model consumes, and their digests."""

    path: Path
    record: dict
    ignored: list[str]
    head: dict | None = None  # the record of the output head, where there is one
    head_path: Path | None = None  # the file that holds it
    head_offset: int = 0  # of its first byte there
    precision: str = "stored"
    embedding: dict | None = None  # the record of the target's embedding table, where the checkpoint carries it

    @classmethod
    def scan(cls, directory: Path, precision: str = "stored", head: str | None = None) -> Tensors:
        """The head is that of FILE or FILE:TENSOR, or else the checkpoint's own, or none."""
        path = directory / "model.safetensors"
        found = cls(path, {}, [], precision=precision)
        hint = "the weights of the checkpoint; a full-size one is made on demand with `dflash-parity synth`"
        entries = read_header(path, hint)
        own = next((name for name in OWN if name in entries), None) if head is None else None
        for name, entry in sorted(entries.items()):
            if name == own:
                find_head(list(entries), own, path)
                found.take_head(path, entry)
            elif name == EMBEDDING:
                found.embedding = {"tensor": name, **record_of(path, entry)}
            elif name.removeprefix("model.").startswith(IGNORED_PREFIXES):
                found.ignored.append(name)
            else:
                found.record[name] = record_of(path, entry)
        if head is not None:
            file, tensor = split_source(head)
            entries = read_header(file, "the target's weights")
            found.take_head(file, entries[find_head(list(entries), tensor, file)])
        return found

    def take_head(self, path: Path, entry: Entry) -> None:
        self.head = {"tensor": entry.name, **record_of(path, entry)}
        self.head_path, self.head_offset = path, entry.begin

    def prefix_of(self, names) -> str | None:
        """The prefix behind which all of these names are in the file; None where there is none."""
        first = next(iter(names))

        def behind(prefix: str, name: str) -> bool:
            return prefix + name in self.record or prefix + name.removesuffix(".weight") in self.record

        for name in self.record:
            for spelling in (first, first.removesuffix(".weight")):
                prefix = name.removesuffix(spelling)
                if prefix != name and prefix.endswith(".") and all(behind(prefix, other) for other in names):
                    return prefix
        return None

    def load(self, dtype: torch.dtype, wanted=lambda name: True) -> dict[str, torch.Tensor]:
        """The tensors as the precision mode leaves them, in `dtype`; codebooks under the names of an Embedding."""
        state = {}
        with safe_open(str(self.path), "pt") as file:
            for name in filter(wanted, self.record):
                target = f"{name}.weight" if name in CODEBOOKS else name
                if target in state:
                    raise Refused(f"{self.path}: {name} is present under two names.")
                try:
                    state[target] = decoded(self.precision, name, file.get_tensor(name)).to(dtype)
                except PrecisionError as error:
                    raise Refused(f"{self.path}: {error}") from error
        return state


def record_of(path: Path, entry: Entry) -> dict:
    """dtype, shape and digest of a tensor that is read."""
    check_usable(entry, path)
    with open_regular(path, "the file whose header was read") as stream:
        digest = digest_of(stream, entry.begin, entry.size, path, entry.name)
    return {"dtype": entry.dtype, "shape": list(entry.shape), "sha256": digest}


def digest_of(stream, begin: int, left: int, path: Path, name: str) -> str:
    stream.seek(begin)
    digest = hashlib.sha256()
    while left:
        piece = stream.read(min(left, 1 << 24))
        if not piece:
            raise Refused(f"{path}: ends inside the tensor {name}. Write the checkpoint again.")
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()
