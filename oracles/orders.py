"""What rounding in float32 costs, from more than one draw: runs whose linear products add their terms in other orders.

Reordering the terms of a product changes nothing in exact arithmetic and every rounding in float32. The reference's own
order is one draw, and a lucky one now and then: where a few large elements decide a stage's error, a bar made of it
alone would fail correct programs. The largest distance over several orders does not hang on one draw.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from capture import Capture
from proposals import INTEGER_STAGES, NearTie
from stages import row_length
from transformers import DynamicCache

ORDERS = 7  # beside the reference's own


class Reordered(TorchFunctionMode):
    """Hands torch.nn.functional.linear its input channels in an order that `order` and their number decide."""

    def __init__(self, order: int):
        super().__init__()
        self.order = order
        self.products = 0
        self._permutation: dict[int, torch.Tensor] = {}

    def permutation(self, channels: int) -> torch.Tensor:
        if channels not in self._permutation:
            generator = torch.Generator().manual_seed(self.order)
            self._permutation[channels] = torch.randperm(channels, generator=generator)
        return self._permutation[channels]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, weight, *rest = args
            order = self.permutation(weight.shape[-1])
            self.products += 1
            args = (x[..., order], weight[..., order], *rest)
        return func(*args, **(kwargs or {}))


def distances(name: str, value: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """Relative L2, and the largest error relative to its row's rms: the two measures that bars are made of."""
    rows = truth.double().reshape(-1, row_length(name, list(truth.shape)))
    error = value.double().reshape(rows.shape) - rows
    norm, rms = rows.norm(), rows.square().mean(dim=1, keepdim=True).sqrt()
    if not error.any():
        return 0.0, 0.0
    return (error.norm() / norm).item(), (error.abs() / rms).nan_to_num(0.0).max().item()


def one_order(runner, proposer, order: int) -> dict[str, torch.Tensor]:
    with Reordered(order) as reordered:
        with runner.arithmetic(), Capture(runner.model, runner.rotary_dim).attached() as capture:
            cache = DynamicCache()
            runner.forward(cache=cache)
            cache.crop(-runner.noise.shape[1])
        stages = capture.stages
        stages["kv.k"] = torch.stack([layer.keys[0].transpose(0, 1) for layer in cache.layers])
        stages["kv.v"] = torch.stack([layer.values[0].transpose(0, 1) for layer in cache.layers])
        if proposer is not None:
            stages |= proposer.run(runner, stages["final"])
    if reordered.products == 0:
        raise RuntimeError("no product went through torch.nn.functional.linear; the orders would all be the same")
    return stages


def spread(runner, proposer, truth: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    """The largest distances of any order from `truth`, the reference's own included, by stage."""
    largest = {name: distances(name, own[name], truth[name]) for name in truth if name not in INTEGER_STAGES}
    for order in range(1, ORDERS + 1):
        stages = one_order(runner, proposer, order)
        for name in INTEGER_STAGES:
            if name in truth and not torch.equal(stages[name], truth[name]):
                raise NearTie(f"{name} is {truth[name].tolist()} in float64 and {stages[name].tolist()} in order {order}")
        for name in largest.keys() & stages.keys():
            found = distances(name, stages[name], truth[name])
            largest[name] = tuple(max(pair) for pair in zip(largest[name], found, strict=True))
    return {name: [float(f"{value:.6g}") for value in pair] for name, pair in sorted(largest.items())}
