#!/usr/bin/env python3
"""Self-tests of the other orders of summation: they change roundings and nothing else, and nothing slips past them.

Run with the interpreter that runs generate.py: python oracles/test_orders.py
"""

from __future__ import annotations

import generate  # noqa: F401  first: it settles how torch is imported

import unittest

import torch

from orders import CHAIN, Reordered

linear = torch.nn.functional.linear
attend = torch.nn.functional.scaled_dot_product_attention
SCORES = "br,bkr->bk"


def random(*shape, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def visible(rows: int, keys: int) -> torch.Tensor:
    """A causal mask with a window, each row of which sees other keys."""
    gap = (keys - rows + torch.arange(rows))[:, None] - torch.arange(keys)[None]
    return ((gap >= 0) & (gap < 9))[None, None]


def sums(dtype) -> dict:
    """Every kind of sum, of lengths that fill a chain, overfill it and leave it unfilled."""
    found = {}
    for terms in (16, CHAIN, CHAIN + 1, 2560):
        x, weight = random(3, terms, dtype=dtype), random(5, terms, dtype=dtype)
        found[f"linear {terms}"] = linear(x, weight)
        found[f"linear {terms} with a bias"] = linear(x, weight, random(5, dtype=dtype))
        found[f"mean {terms}"] = x.square().mean(-1, keepdim=True)
    q, k, v = random(1, 4, 5, 16, dtype=dtype), random(1, 4, 40, 16, dtype=dtype), random(1, 4, 40, 16, dtype=dtype)
    found["attention"] = attend(q, k, v, scale=0.25)
    found["masked attention"] = attend(q, k, v, attn_mask=visible(5, 40))
    few, grouped = k[:, :2], v[:, :2]
    found["grouped attention"] = attend(q, few, grouped, enable_gqa=True)
    found["scores"] = torch.einsum(SCORES, random(2, 16, dtype=dtype), random(2, 4, 16, dtype=dtype))
    return found


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one.double() - other.double()).norm() / other.double().norm()).item()


class TheOrders(unittest.TestCase):
    def test_they_change_float64_by_nothing_but_its_roundings(self):
        with torch.no_grad():
            plain = sums(torch.float64)
            for order in (1, 7):
                with Reordered(order):
                    other = sums(torch.float64)
                for name, value in plain.items():
                    self.assertLess(apart(other[name], value), 1e-14, name)

    def test_they_change_the_roundings_of_every_kind_of_sum_in_float32(self):
        with torch.no_grad():
            plain = sums(torch.float32)
            for name, value in plain.items():
                changed = 0
                for order in range(1, 8):
                    with Reordered(order):
                        other = sums(torch.float32)[name]
                    self.assertLess(apart(other, value), 1e-5, name)
                    changed += not torch.equal(other, value)
                self.assertGreater(changed, 0, f"no order changed a bit of {name}")

    def test_an_order_is_a_function_of_its_number(self):
        x = random(4, 64, dtype=torch.float32).square()
        means = []
        for order in (1, 1, 2):
            with Reordered(order):
                means.append(x.mean(-1, keepdim=True))
        self.assertTrue(torch.equal(means[0], means[1]))
        self.assertFalse(torch.equal(means[0], means[2]))

    def test_a_mean_adds_its_chains_one_term_after_another(self):
        reordered = Reordered(3)
        first = reordered.permutation(CHAIN)[0]
        x = torch.full((1, CHAIN), 2.0**-24)
        x[0, first] = 1.0  # each of the others is half a unit of the sum and is rounded away
        with reordered:
            mean = x.mean(-1, keepdim=True)
        self.assertEqual(mean.item() * CHAIN, 1.0)
        self.assertGreater(x.mean(-1, keepdim=True).item() * CHAIN, 1.0)

    def test_the_fill_of_a_last_chain_is_not_counted(self):
        with Reordered(1):
            self.assertEqual(torch.ones(2, CHAIN + 3).mean(-1, keepdim=True).tolist(), [[1.0], [1.0]])


class WhatWouldSlipPastThem(unittest.TestCase):
    def refused(self, words, act):
        with self.assertRaisesRegex(RuntimeError, words), Reordered(1):
            act()

    def test_a_mean_that_is_not_a_norms(self):
        self.refused("a mean over dim 0", lambda: torch.ones(3, 4).mean(0, keepdim=True))
        self.refused("keepdim False", lambda: torch.ones(3, 4).mean(-1))

    def test_attention_whose_mask_goes_with_the_place_of_a_key(self):
        q = random(1, 1, 4, 16)
        self.refused("causal without a mask", lambda: attend(q, q, q, is_causal=True))
        self.refused("has dropout", lambda: attend(q, q, q, dropout_p=0.5))

    def test_an_einsum_that_sums_over_something_else(self):
        self.refused("expected a sum over the last", lambda: torch.einsum("br,bk->rk", random(2, 3), random(2, 4)))
        self.refused("expected a sum over the last", lambda: torch.einsum("br,br->br", random(2, 3), random(2, 3)))

    def test_a_reference_that_adds_elsewhere(self):
        whole = {"products": 15, "means": 10, "attentions": 2}
        reordered = Reordered(1)
        reordered.counts = whole
        reordered.check(layers=2)
        for kind, found in (("products", 14), ("means", 9), ("attentions", 0)):
            with self.subTest(kind=kind):
                reordered.counts = {**whole, kind: found}
                with self.assertRaisesRegex(RuntimeError, f"found .*{found}.*Find where the reference adds"):
                    reordered.check(layers=2)


if __name__ == "__main__":
    unittest.main()
