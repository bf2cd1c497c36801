"""The block as the target's embedding table gives it: upstream's own lookup of [anchor, MASK, ...], times the scale.

It takes part when the checkpoint's folder carries the target's table. The rows are then those of each run's own dtype,
and no made-up input: the stage `input` is what upstream's code returns, and layer 0 starts from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import dflash.model as upstream
import torch
from safetensors import safe_open

from head import EMBEDDING
from refusal import Refused


class _Target(torch.nn.Module):
    """As much of a target as upstream's lookup asks for: a module with input embeddings."""

    def __init__(self, table: torch.Tensor):
        super().__init__()
        self.embedding = torch.nn.Embedding.from_pretrained(table, freeze=True)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding


@dataclass
class Embedding:
    """The ids of one block and the table that they are looked up in."""

    table: torch.Tensor  # [V, H] as stored
    ids: torch.Tensor  # [B], int64: the anchor, then the mask token
    scale: float

    @classmethod
    def of_block(cls, checkpoint, tensors, anchor: int) -> Embedding:
        with safe_open(str(tensors.path), "pt") as file:
            table = file.get_tensor(EMBEDDING)
        hidden, mask = checkpoint.config.hidden_size, int(checkpoint.value("mask_token_id"))
        if table.dim() != 2 or table.shape[1] != hidden or not table.is_floating_point():
            raise Refused(
                f"{tensors.path}: {EMBEDDING} is {table.dtype}{list(table.shape)}, expected a float matrix with "
                f"hidden_size {hidden} columns. Give the table of the drafter's target."
            )
        for what, token in (("anchor", anchor), ("mask_token_id", mask)):
            if not 0 <= token < table.shape[0]:
                raise Refused(f"{tensors.path}: the {what} {token} is outside the {table.shape[0]} rows of {EMBEDDING}.")
        ids = torch.full((int(checkpoint.value("block_size")),), mask)
        ids[0] = anchor
        return cls(table, ids, checkpoint.embedding_scale)

    def rows(self, dtype: torch.dtype) -> torch.Tensor:
        """[B, H] in `dtype`, looked up and scaled there by upstream's code."""
        # the rows in use alone: a float64 table of a quarter million rows would not fit beside a model
        named, places = self.ids.unique(return_inverse=True)
        target = _Target(self.table[named].to(dtype))
        with torch.no_grad():
            return upstream._raw_input_embeddings(target, places[None], self.scale)[0]
