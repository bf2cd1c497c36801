"""The target's output head: which tensor of a file it is, and the module that multiplies by it.

The rules are those of impl/weights/head_find.c and harness/run/head_source.c (oracles/FORMAT.md, "The output head").
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import torch

from refusal import Refused

HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
PREFIXES = (
    "model.", "language_model.", "language_model.model.", "model.language_model.", "model.language_model.model.",
    "text_model.", "model.text_model.", "llm.", "llm.model.", "thinker.", "thinker.model.",
)  # fmt: skip
OWN = (HEAD, f"model.{HEAD}")  # of a drafter's checkpoint, whose embedding is never its head
HEAD_PARTS = {"lm_head", "embed_out", "output_layer"}

# Rows of the head that are widened at a time: a float64 head of a quarter million rows would not fit beside a model.
HEAD_ROWS = 8192

NUMPY = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def split_source(text: str) -> tuple[Path, str | None]:
    """FILE or FILE:TENSOR; a file of the whole text is never taken apart, and a name has no slash."""
    file, colon, tensor = text.rpartition(":")
    if not (file and colon and tensor) or "/" in tensor or os.path.exists(text):
        return Path(text), None
    return Path(file), tensor


def find_head(names: list[str], tensor: str | None, path: Path) -> str:
    """The name of the head among those of a target's file."""
    if tensor is not None:
        if tensor not in names:
            raise Refused(f"{path}: has no tensor {tensor} among its {len(names)}.")
        return checked_bias(tensor, names, path)
    if HEAD in names:
        return checked_bias(HEAD, names, path)
    heads = [prefix + HEAD for prefix in PREFIXES if prefix + HEAD in names]
    if len(heads) > 1:
        raise ambiguous(path, "several prefixed heads", heads)
    if heads:
        return checked_bias(heads[0], names, path)
    embeddings = [prefix + EMBEDDING for prefix in ("", *PREFIXES) if prefix + EMBEDDING in names]
    unknown = [name for name in names if HEAD_PARTS & set(name.split(".")) or name == "output.weight"]
    if unknown:
        raise ambiguous(path, "no head has a known name, and these are or belong to one", unknown + embeddings[:1])
    if len(embeddings) > 1:
        raise ambiguous(path, "no head, and several embeddings", embeddings)
    if not embeddings:
        raise Refused(f"{path}: has no tensor {HEAD}, bare or behind a known prefix, and no embedding that could be tied "
                      f"to it, among its {len(names)}. Give the file of the target that holds its output head, or name "
                      "the tensor: --lm-head FILE:TENSOR.")  # fmt: skip
    if any(int(count) > 1 for count in re.findall(r"(?<=\d)-of-(\d+)", path.name)):
        raise Refused(f"{path}: is one of several files and holds an embedding ({embeddings[0]}) but no output head, which "
                      f"another of them may hold. Give that file, or --lm-head {path}:{embeddings[0]}.")  # fmt: skip
    return embeddings[0]


def ambiguous(path: Path, why: str, names: list[str]) -> Refused:
    return Refused(f"{path}: which tensor is the output head is not clear: {why}: {', '.join(names)}. Name the one that is "
                   "meant: --lm-head FILE:TENSOR.")  # fmt: skip


def checked_bias(name: str, names: list[str], path: Path) -> str:
    bias = f"{name.removesuffix('.weight')}.bias"
    if name.endswith(".weight") and bias in names:
        raise Refused(f"{path}: beside {name} there is {bias}: an output head with a bias, which is not supported.")
    return name


class Head(torch.nn.Module):
    """The target's output head: rows W^T, the rows of W read from the file and widened a part at a time."""

    def __init__(self, tensors, vocab: int, hidden: int, dtype: torch.dtype):
        super().__init__()
        record = tensors.head
        if record["shape"] != [vocab, hidden]:
            raise Refused(
                f"{tensors.head_path}: {record['tensor']} is {record['dtype']}{record['shape']}, expected "
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
