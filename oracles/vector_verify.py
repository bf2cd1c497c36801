"""Isolated values of what follows a proposal: verify windows, acceptance, residual distributions, draws.

Windows and draws are written here from their description (reports/STAGES.md, impl/include/dflash.h); residuals are upstream's
own, taken from its rejection sampler. Every decision lies further from its edge than float32 can err, but for edges
that are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import dflash.model as upstream
import numpy as np
import torch

from vector_heads import SAFE, float32, generator

SLOTS = 7


def window_of(policy: str, threshold: float, cap: int, accepted: int, raw: np.ndarray) -> tuple[int, float]:
    """Tokens to verify, anchor included, and how near the nearest decision was."""
    if policy == "ladder":
        return min(max(accepted + 2, 3), cap), 1.0
    sigma = 1.0 / (1.0 + np.exp(-raw.astype(np.float64)))
    kept, nearest, survival = 0, 1.0, 1.0
    for value in sigma:
        survival = survival * value if policy == "survival" else value
        nearest = min(nearest, abs(survival - threshold))
        if not survival >= threshold:
            break
        kept += 1
    return min(max(1 + kept, 2), cap), nearest


def windows() -> tuple[dict, dict]:
    """All three policies at both ends: nothing kept, everything kept, a cap below what is kept, thresholds near 0 and 1."""
    rng = generator(8000)
    logit = lambda p: np.log(p / (1 - p))  # noqa: E731
    rows = [logit(np.array([0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9])), np.full(SLOTS, 9.0), np.full(SLOTS, -6.0),
            rng.normal(1.5, 1.5, SLOTS), rng.normal(0.0, 3.0, SLOTS), np.array([4.0, -3.0, 8.0, 8.0, 8.0, 8.0, 8.0])]  # fmt: skip
    raw = float32(np.stack(rows))
    cases, found = [], []
    for row in range(len(rows)):
        for policy in ("survival", "slot"):
            for threshold in (0.002, 0.05, 0.5, 0.7, 0.97):
                for cap in (2, 4, SLOTS + 1, 20):
                    window, nearest = window_of(policy, float(np.float32(threshold)), cap, -1, raw[row].numpy())
                    if nearest > SAFE / 2:
                        cases.append([row, policy, threshold, cap, -1])
                        found.append(window)
    for cap in (3, 5, SLOTS + 1):
        for accepted in (0, 1, 2, cap - 2, cap - 1, cap, cap + 5):
            cases.append([0, "ladder", 0.0, cap, accepted])
            found.append(window_of("ladder", 0.0, cap, accepted, raw[0].numpy())[0])
    return {"cases": cases}, {"raw": raw, "window": torch.tensor(found, dtype=torch.int32)}


def distribution(rng: np.random.Generator, count: int, spread: float) -> torch.Tensor:
    return torch.softmax(torch.from_numpy(rng.normal(0.0, spread, count)), -1).float()


def residual_of(p: torch.Tensor, q: torch.Tensor, candidate: torch.Tensor | None) -> torch.Tensor:
    """What upstream draws from after a rejection; the first token is rejected by a uniform number of 1."""
    caught = []
    indices = None if candidate is None else candidate.long()[None, None]
    token = torch.tensor([[int(candidate[0]) if candidate is not None else int(q.argmax())]])
    target = p.double()[None, None].expand(1, 2, -1)
    with mock.patch.object(torch, "rand_like", lambda like: torch.full_like(like, torch.inf)), \
            mock.patch.object(upstream, "_sample_probs", lambda probs: (caught.append(probs[0]), torch.tensor([0]))[1]):  # fmt: skip
        upstream._rejection_sample(token, target, q.double()[None, None], indices)
    return caught[0]


def residual(kind: str, seed: int) -> tuple[dict, dict]:
    rng = generator(seed)
    p = distribution(rng, 150, 1.5)
    if kind == "whole":
        q, candidate = distribution(rng, 150, 1.5), None
    elif kind == "same":
        q, candidate = p.clone(), None
    else:
        candidate = torch.from_numpy(rng.permutation(150)[:9].astype(np.int32))
        q = distribution(rng, 9, 1.0)
    datasets = {"p": p, "q": q, "residual": residual_of(p, q, candidate)}
    return {"kind": kind, "seed": seed}, datasets | ({} if candidate is None else {"candidate": candidate})


def draws() -> tuple[dict, dict]:
    """Rows of 200 values, some of them unnormalised or with zeros at the ends, and numbers near the edges; -1 where no
    token can be drawn."""
    rng = generator(8100)
    rows, uniform, index = [], [], []
    for number in range(24):
        row = distribution(rng, 200, 1.0 + number % 3).numpy().copy()
        row[: number % 4] = 0.0
        row[200 - number % 5 :] = 0.0
        row *= np.float32((1.0, 3.0, 0.25)[number % 3])
        cumulative = row.astype(np.float64).cumsum()
        edges = np.concatenate([[0.0], cumulative / cumulative[-1]])
        target = int(rng.choice(np.flatnonzero(np.diff(edges) > 1e-5)))
        u = edges[target] + 2e-6 if number % 2 else edges[target + 1] - 2e-6
        u = float(np.float32((0.0, u, u, u, np.float32(1 - 2**-24))[number % 5]))
        rows.append(row)
        uniform.append(u)
        index.append(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")))
    for wrong in ("nothing", "negative", "infinite", "one"):
        row = distribution(rng, 200, 1.0).numpy().copy()
        if wrong == "nothing":
            row[:] = 0.0
        if wrong == "negative":
            row[150] = -1e-6
        rows.append(row)
        uniform.append(1.0 if wrong == "one" else -0.25 if wrong == "infinite" else 0.5)
        index.append(-1)
    return {}, {"probability": float32(np.stack(rows)), "u": float32(np.array(uniform)),
                "index": torch.tensor(index, dtype=torch.int32)}  # fmt: skip


def acceptance() -> tuple[dict, dict]:
    """u q < p, in exact products: random numbers, and equality, which is no acceptance."""
    rng = generator(8200)
    u, q, p = (rng.random(60).astype(np.float32) for _ in range(3))
    u[:12], q[:12] = np.float32(0.5), np.float32(2.0) ** -np.arange(12, dtype=np.float32)
    p[:12] = u[:12] * q[:12]  # exact
    p[3], p[7] = np.nextafter(p[3], np.float32(1)), np.nextafter(p[7], np.float32(0))
    u[12], p[13], q[14] = 0.0, 0.0, 0.0
    accepted = u.astype(np.float64) * q.astype(np.float64) < p.astype(np.float64)
    return {}, {"u": float32(u), "p": float32(p), "q": float32(q), "accepted": torch.from_numpy(accepted.astype(np.int32))}


def prefixes() -> tuple[dict, dict]:
    rng = generator(8300)
    target = rng.integers(50, size=(8, SLOTS)).astype(np.int32)
    draft, length = target.copy(), []
    for row in range(8):
        if row < SLOTS:
            draft[row, row] += 1
        draft[row, row + 2 :] += rng.integers(2, size=max(0, SLOTS - row - 2)).astype(np.int32)
        length.append(int((draft[row] == target[row]).cumprod().sum()))
    return {}, {"draft": torch.from_numpy(draft), "target": torch.from_numpy(target),
                "length": torch.tensor(length, dtype=torch.int32)}  # fmt: skip


def cases() -> Iterator[tuple[str, dict, dict]]:
    yield "verify/windows", *windows()
    for number, kind in enumerate(("whole", "candidates", "same")):
        yield f"verify/residual.{kind}", *residual(kind, 8400 + number)
    yield "verify/draw", *draws()
    yield "verify/accept", *acceptance()
    yield "verify/prefix", *prefixes()
