"""The tensors of a checkpoint: their records for the provenance, the drafter's state, and the target's output head."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from embedding import EMBEDDING
from precision import PrecisionError, decoded
from refusal import Refused

IGNORED_PREFIXES = ("embed_tokens.", "lm_head.", "rotary_emb.")
CODEBOOKS = ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook")
HEAD = "lm_head.weight"

# Rows of the head that are widened at a time: a float64 head of a quarter million rows would not fit beside a model.
HEAD_ROWS = 8192

NUMPY = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


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
    def scan(cls, directory: Path, precision: str = "stored", head_file: Path | None = None) -> Tensors:
        """The head is that of `head_file`, or else the checkpoint's own, or none."""
        path = directory / "model.safetensors"
        found = cls(path, {}, [], precision=precision)
        own_head = head_file is None

        def consumed(name: str) -> bool:
            return own_head if name == HEAD else name == EMBEDDING or not name.startswith(IGNORED_PREFIXES)

        hint = "the weights of the checkpoint; a full-size one is made on demand with `dflash-parity synth`"
        for name, record, offset in records(path, consumed, hint):
            if record is None:
                found.ignored.append(name)
            elif name == HEAD:
                found.head, found.head_path, found.head_offset = {"tensor": name, **record}, path, offset
            elif name == EMBEDDING:
                found.embedding = {"tensor": name, **record}
            else:
                found.record[name] = record
        if own_head:
            return found
        for name, record, offset in records(head_file, lambda name: name == HEAD, "the target's weights"):
            if record is not None:
                found.head, found.head_path, found.head_offset = {"tensor": name, **record}, head_file, offset
        if found.head is None:
            raise Refused(f"{head_file}: has no tensor {HEAD}. Give the file of the target that holds its output head.")
        return found

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


def records(path: Path, wanted, expected: str):
    """Of each tensor of a safetensors file: its name, its record and the offset of its first byte; None and 0 for one
    that is not wanted."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
            for name, entry in sorted(header.items()):
                if name == "__metadata__":
                    continue
                if not wanted(name):
                    yield name, None, 0
                    continue
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                record = {"dtype": entry["dtype"], "shape": entry["shape"],
                          "sha256": digest_of(stream, begin, end - begin, path, name)}  # fmt: skip
                yield name, record, begin
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error.strerror}). Expected {expected}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: its header is not a safetensors header ({error}).") from error


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


class Head(torch.nn.Module):
    """The target's output head: rows W^T, the rows of W read from the file and widened a part at a time."""

    def __init__(self, tensors: Tensors, vocab: int, hidden: int, dtype: torch.dtype):
        super().__init__()
        record = tensors.head
        if record["dtype"] not in NUMPY or record["shape"] != [vocab, hidden]:
            raise Refused(
                f"{tensors.head_path}: {HEAD} is {record['dtype']}{record['shape']}, expected F32, F16 or BF16 of "
                f"[{vocab}, {hidden}]: vocab_size and hidden_size of config.json."
            )
        self.kind = record["dtype"]
        self.dtype = dtype
        self.data = np.memmap(tensors.head_path, NUMPY[self.kind], "r", tensors.head_offset, (vocab, hidden))

    def rows(self, begin: int) -> torch.Tensor:
        # widened by numpy, below torch's dispatcher: reading a weight is no operation of the model
        values = np.array(self.data[begin : begin + HEAD_ROWS])
        if self.kind == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        if self.dtype == torch.float64:
            return torch.from_numpy(values.astype(np.float64))
        return torch.from_numpy(values.astype(np.float32)).to(self.dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        pieces = [torch.nn.functional.linear(hidden, self.rows(at)) for at in range(0, self.data.shape[0], HEAD_ROWS)]
        return torch.cat(pieces, dim=-1)
