"""Positions with gaps: tokens that the drafter's context never held.

Upstream rotates by the position ids that it is given, but its masks count rows. Where positions have gaps and a layer
has a window the two part, and the position decides (a window is a distance between positions). Its own mask function
is then asked about a context without gaps, and the rows that exist are picked from its answer.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import dflash.model as upstream
import torch

from refusal import Refused


def parse_gaps(text: str) -> list[list[int]]:
    """ROW:SKIPPED,... in words of the command line."""
    try:
        return [[int(part) for part in gap.split(":")] for gap in text.split(",")]
    except ValueError as error:
        raise Refused(f"gaps {text!r}: expected ROW:SKIPPED,..., whole numbers.") from error


def gaps_text(gaps: list[list[int]]) -> str:
    return ",".join(f"{row}:{skipped}" for row, skipped in gaps)


def check_gaps(gaps, where: str) -> None:
    good = isinstance(gaps, list) and all(
        isinstance(gap, list) and len(gap) == 2 and all(type(value) is int and value > 0 for value in gap) for gap in gaps
    )
    if not good or [gap[0] for gap in gaps] != sorted({gap[0] for gap in gaps}):
        raise Refused(f"{where}: gaps is {gaps!r}, expected a list of [row, positions skipped before it], rows increasing.")


def spaced_positions(context: int, start: int, block: int, gaps: list[list[int]]) -> torch.Tensor:
    """[context + block]: the block from `start` on, the context before it, with positions left out before some rows.
    A gap before row `context` parts the context from the block; the block itself has none."""
    for row, _ in gaps:
        if row > context:
            raise Refused(f"a gap before row {row}: expected a row of the context, 1 to {context}.")
    needed = context + sum(skipped for _, skipped in gaps)
    if start < needed:
        raise Refused(f"start {start}: {context} context rows and the gaps before it need a start of {needed}.")
    positions = torch.arange(start - context, start + block)
    for row, skipped in gaps:
        positions[:row] -= skipped
    return positions


def has_gaps(positions: torch.Tensor) -> bool:
    return bool((positions.diff() != 1).any())


@contextmanager
def masks_by_position(positions: torch.Tensor):
    """Lets upstream's mask function see the keys at their positions. `positions` [rows]: those of the first keys of
    every call, however many it has."""
    if not has_gaps(positions):
        yield
        return
    original = upstream._attention_mask

    def spaced(query, key, *, is_causal, sliding_window):
        rows, keys = query.shape[-2], key.shape[-2]
        # no row sees farther than its window, so a wider gap hides the same rows as one that is as wide
        steps = positions[:keys].diff(prepend=positions[:1]).clamp(max=sliding_window or 1)
        at = steps.cumsum(0)
        first = at[keys - rows]
        like = [torch.empty(1, 1, int(at[-1] - low) + 1, 1, dtype=torch.bool) for low in (first, 0)]
        mask = original(*like, is_causal=is_causal, sliding_window=sliding_window)
        return mask[:, :, at[keys - rows :] - first][..., at]

    with mock.patch.object(upstream, "_attention_mask", spaced):
        yield
