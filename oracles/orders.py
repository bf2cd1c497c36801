"""What rounding in float32 costs, from more than one draw: runs that add the terms of their sums in other orders.

Reordering the terms of a sum changes nothing in exact arithmetic and every rounding in float32. The reference's own
order is one draw, and a lucky one now and then: where a few large elements decide a stage's error, a limit made of it
alone would fail correct programs. The largest distance over several orders does not hang on one draw.

Reordered are the channels of every linear product and of the selector's scores, the squares of every norm, and in
attention the channels of a score and the keys, with which softmax's sum and the weighted sum of the values go. No
function is exchanged and no cast added or left out: what is not an order of additions (root, exponential, quotient)
stays as the reference has it.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from capture import Capture
from proposals import INTEGER_STAGES, NearTie
from sketch import sketch_distances
from stages import row_length

ORDERS = 7  # beside the reference's own
# Squares that a norm adds one after another before the partial sums meet. torch adds them in dozens of lanes, a few in
# each, so that its mean is nearly exact in any order; other programs give a lane or a loop this many, and a correct
# one is not to fail for it. A matrix product needs no such help: the library already adds its terms in long chains.
CHAIN = 64


class Reordered(TorchFunctionMode):
    """Hands every sum of the reference its terms in an order that `order` and their number decide."""

    def __init__(self, order: int):
        super().__init__()
        self.order = order
        self.counts = {"products": 0, "means": 0, "attentions": 0}
        self._permutation: dict[int, torch.Tensor] = {}
        self._other = {
            torch.nn.functional.linear: self.linear,
            torch.nn.functional.scaled_dot_product_attention: self.attention,
            torch.Tensor.mean: self.mean,
            torch.functional.einsum: self.einsum,
        }

    def permutation(self, terms: int) -> torch.Tensor:
        if terms not in self._permutation:
            generator = torch.Generator().manual_seed(self.order)
            self._permutation[terms] = torch.randperm(terms, generator=generator)
        return self._permutation[terms]

    def linear(self, x, weight, bias=None):
        order = self.permutation(weight.shape[-1])
        self.counts["products"] += 1
        return torch.nn.functional.linear(x[..., order], weight[..., order], bias)

    def mean(self, squares, dim, keepdim=False):
        """Chains of CHAIN terms from left to right, then the sum of the chains."""
        if dim != -1 or not keepdim:
            raise RuntimeError(f"a mean over dim {dim}, keepdim {keepdim}: a norm takes it over the last and keeps that")
        terms = squares.shape[-1]
        self.counts["means"] += 1
        # the zeros that fill up the last chain change no bit of a sum of squares
        filled = torch.nn.functional.pad(squares[..., self.permutation(terms)], (0, -terms % CHAIN))
        first, *others = filled.unflatten(-1, (-1, CHAIN)).unbind(-1)
        return sum(others, start=first).sum(-1, keepdim=True) / terms

    def attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **others):
        """With the keys go the terms of softmax's sum and of the weighted sum of the values."""
        if is_causal or dropout_p:
            raise RuntimeError("attention that is causal without a mask, or has dropout, cannot take its keys reordered")
        channels, keys = self.permutation(key.shape[-1]), self.permutation(key.shape[-2])
        self.counts["attentions"] += 1
        return torch.nn.functional.scaled_dot_product_attention(
            query[..., channels], key[..., keys, :][..., channels], value[..., keys, :],
            None if attn_mask is None else attn_mask[..., keys], **others,
        )  # fmt: skip

    def einsum(self, equation, *operands):
        """The selector's scores, a product like the linear ones."""
        inputs, output = equation.split("->")
        summed = {term[-1] for term in inputs.split(",")}
        if len(summed) != 1 or summed & set(output):
            raise RuntimeError(f"einsum {equation!r}: expected a sum over the last dimension of every operand and no other")
        order = self.permutation(operands[0].shape[-1])
        return torch.einsum(equation, *(operand[..., order] for operand in operands))

    def check(self, layers: int) -> None:
        """After one forward; a reference that sums in another way would be drawn from less than it seems."""
        means, attentions = 4 * layers + 2, layers
        found = self.counts
        if found["products"] <= 7 * layers or (found["means"], found["attentions"]) != (means, attentions):
            raise RuntimeError(
                f"expected more than {7 * layers} products, {means} means and {attentions} attentions to be reordered, "
                f"found {found['products']}, {found['means']} and {found['attentions']}. Find where the reference adds."
            )

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self._other.get(func, func)(*args, **(kwargs or {}))


def distances(name: str, value: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """Relative L2, and the largest error relative to its row's rms: the two measures that limits are made of."""
    rows = truth.double().reshape(-1, row_length(name, list(truth.shape)))
    error = value.double().reshape(rows.shape) - rows
    norm, rms = rows.norm(), rows.square().mean(dim=1, keepdim=True).sqrt()
    if not error.any():
        return 0.0, 0.0
    return (error.norm() / norm).item(), (error.abs() / rms).nan_to_num(0.0).max().item()


def one_order(runner, proposer, order: int) -> dict[str, torch.Tensor]:
    with Reordered(order) as reordered:
        with runner.arithmetic(), Capture(runner.model, runner.rotary_dim).attached() as capture:
            _, kept = runner.cached()
            reordered.check(len(runner.model.layers))
        stages = capture.stages | kept
        if proposer is not None:
            stages |= proposer.run(runner, stages["final"])
    return stages


def spread(runner, proposer, truth: dict, own: dict, sketches) -> dict[str, list[float]]:
    """The largest distances of any order from `truth`, the reference's own included, by stage. A stage that `sketches`
    (NAME, tensor -> its sketch; None for a stage stored whole) knows has those of its sketch under NAME#sketch too."""
    floats = [name for name in truth if name not in INTEGER_STAGES]
    expected = {name: sketches(name, truth[name]) for name in floats}
    largest: dict[str, tuple[float, float]] = {}

    def measure(stages):
        for name in floats:
            if name not in stages:
                continue
            found = {name: distances(name, stages[name], truth[name])}
            if expected[name] is not None:
                width = row_length(name, list(truth[name].shape))
                found[f"{name}#sketch"] = sketch_distances(sketches(name, stages[name]), expected[name], width)
            for label, pair in found.items():
                largest[label] = tuple(map(max, largest.get(label, pair), pair))

    measure(own)
    for order in range(1, ORDERS + 1):
        stages = one_order(runner, proposer, order)
        for name in INTEGER_STAGES:
            if name in truth and not torch.equal(stages[name], truth[name]):
                raise NearTie(f"{name} is {truth[name].tolist()} in float64 and {stages[name].tolist()} in order {order}")
        measure(stages)
    return {name: [float(f"{value:.6g}") for value in pair] for name, pair in sorted(largest.items())}
