"""Isolated proposals: sampled draws of the three families, and draft vocabularies that are a part of the target's.

Upstream's own functions draw, with torch.multinomial exchanged for the inverse of the cumulative distribution at a
given uniform number, so that a draw has one right answer. The numbers lie near the edges of the cumulative
distribution, and further from them than float32 can err. Upstream knows no reduced vocabulary: its code runs on the
table's rows, and rows become ids on the way in and out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import dflash.model as upstream
import numpy as np
import torch

from proposals import sorted_topk
from refusal import Refused
from vector_heads import SAFE, SEEDS, Fixture, arithmetic, float32, generator

SLOTS = 4
EDGE = 1e-4  # least distance of a uniform number from an edge of the cumulative distribution


class Draws:
    """Stands in for torch.multinomial, slot after slot: chooses a uniform number near an edge, and inverts."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.uniform: list[float] = []
        self.probability: list[torch.Tensor] = []
        self.index: list[int] = []

    def choose(self, cumulative: np.ndarray) -> float:
        """Just inside one end of a token's share, or in its middle where it is too narrow; the first slot draws 0."""
        if not self.uniform and cumulative[0] > EDGE:
            return 0.0
        edges = np.concatenate([[0.0], cumulative / cumulative[-1]])
        index = int(np.searchsorted(edges[1:], self.rng.random(), side="right"))
        low, high = edges[index], edges[index + 1]
        inset = min(EDGE * (1.5 + self.rng.random()), (high - low) / 2)
        return float(np.float32(low + inset if self.rng.random() < 0.5 else high - inset))

    def __call__(self, probability: torch.Tensor, num_samples: int, **_) -> torch.Tensor:
        if num_samples != 1:
            raise RuntimeError("the reference draws several numbers at once; the inverse no longer fits")
        found = []
        for row in probability.reshape(-1, probability.shape[-1]):
            cumulative = row.double().numpy().cumsum()
            u = self.choose(cumulative)
            found.append(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")))
            self.uniform.append(u)
            self.probability.append(row.detach().clone())
            self.index.append(found[-1])
        return torch.tensor(found).reshape(*probability.shape[:-1], 1)

    def clear(self) -> bool:
        """Whether no draw hangs on less than EDGE, the ends of the distribution apart."""
        for u, row in zip(self.uniform, self.probability, strict=True):
            cumulative = row.double().numpy().cumsum()
            inner = cumulative[:-1] / cumulative[-1]
            if np.abs(inner[inner > 0] - u).min() < EDGE * 0.99:
                return False
        return True


@contextmanager
def drawn(draws: Draws):
    with mock.patch.object(torch, "multinomial", draws), mock.patch.object(torch, "topk", sorted_topk):
        yield


def safe(scores: torch.Tensor) -> bool:
    best = torch.topk(scores, 2).values
    return bool((best[..., 0] - best[..., 1]).min() > SAFE)


class Reduced:
    """A draft vocabulary: which target id each row of the table is; `full` is the target's vocabulary in order."""

    def __init__(self, rng: np.random.Generator, rows: int, target: int, usable: int):
        chosen = rng.permutation(usable)[:rows] if rows < target else rng.permutation(target)
        self.ids = torch.from_numpy(np.ascontiguousarray(chosen)).long()
        self.offset = (self.ids - torch.arange(rows)).to(torch.int32)


def propose(fixture: Fixture, rows, logits, anchor: int, temperature: float, draws: Draws, ids) -> dict:
    """rows [n, H], logits [n, v] in float64; ids [v] of the columns. Tokens, candidates and distribution."""
    wide_rows, wide_logits = rows[None], logits[None]
    model, family, n = fixture.model, fixture.checkpoint.family, rows.shape[0]
    with arithmetic(), drawn(draws):
        if family == "dflash2":
            # upstream's ids are target ids: the columns that the table lacks can never be candidates
            full = torch.full((1, n, fixture.model.config.vocab_size), -torch.inf, dtype=torch.float64)
            full[..., ids] = wide_logits
            selector, scores = model.candidate_selector, []
            argmax = torch.argmax
            with mock.patch.object(torch, "argmax", lambda t, **k: (scores.append(t.clone()), argmax(t, **k))[1]):
                path, candidates, q = selector.select(wide_rows, full, torch.tensor([anchor]), temperature)
            if temperature > 0:
                return {"tokens": path[0], "candidates": candidates[0], "probability": q[0], "scores": None}
            return {"tokens": path[0], "candidates": candidates[0], "scores": torch.cat(scores)}
        candidates = ids  # the same in every slot
        if family == "dspark":
            head = model.markov_head
            # the head runs in the table's rows: its W1 gives each row the embedding of the id that it stands for
            w1 = head.markov_w1.weight.clone()
            try:
                head.markov_w1.weight.data = w1[ids]
                first = torch.tensor([int((ids == anchor).nonzero()[0, 0])])
                tokens, scores = head.sample_block_tokens(wide_logits, first_prev_token_ids=first,
                                                          hidden_states=wide_rows, temperature=temperature)  # fmt: skip
            finally:
                head.markov_w1.weight.data = w1
            scores, chosen = scores[0], tokens[0]
        else:
            scores, chosen = wide_logits[0], upstream.sample(wide_logits, temperature)[0]
    result = {"tokens": ids[chosen], "candidates": candidates, "scores": scores}
    if temperature > 0:
        result["probability"] = torch.stack(draws.probability)
    return result


def proposal_case(fixture: Fixture, name: str, first_seed: int, temperature: float, columns: int | None):
    """columns: rows of a reduced table with a head of its own; None: the whole vocabulary and given logits."""
    model, family = fixture.model, fixture.checkpoint.family
    vocab, usable = model.config.vocab_size, fixture.vocab
    for seed in range(first_seed, first_seed + SEEDS):
        rng = generator(seed)
        rows = float32(rng.standard_normal((SLOTS, fixture.hidden)))
        datasets, ids = {"rows": rows}, torch.arange(vocab)
        if columns is not None:
            reduced = Reduced(rng, columns, vocab, usable)
            head = float32(rng.normal(0.0, 2.0 / fixture.hidden**0.5, (columns, fixture.hidden)))
            multiplier = float(fixture.checkpoint.value("output_multiplier", 1.0) or 1.0)
            head = head / max(multiplier, 0.1)
            wide_rows, wide_head = rows.double(), head.double()
            with arithmetic():
                precise = output(model, fixture, wide_rows, wide_head)
            logits, ids = precise.float(), reduced.ids
            datasets |= {"head": head, "offset": reduced.offset, "logits_float64": precise}
        else:
            logits = rng.normal(0.0, 2.5, (SLOTS, vocab)).astype(np.float32)
            logits[:, usable:] -= 40.0
            logits = torch.from_numpy(logits)
        anchor = int(ids[int(rng.integers(len(ids)))])
        draws = Draws(rng)
        found = propose(fixture, rows.double(), logits.double(), anchor, temperature, draws, ids)
        if temperature > 0:
            if not draws.clear() or family == "dflash2" and not ordered(logits, fixture):
                continue
            share = found["probability"].gather(-1, torch.tensor(draws.index)[:, None])[:, 0]
            probability = found["probability"]
            datasets["uniform"] = torch.tensor(draws.uniform, dtype=torch.float32)
        else:
            if not safe(found["scores"]) or family == "dflash2" and not ordered(logits, fixture):
                continue
            best = found["scores"].argmax(-1, keepdim=True)
            share = torch.softmax(found["scores"], -1).gather(-1, best)[:, 0]
            probability = torch.zeros_like(found["scores"]).scatter(-1, best, 1.0)
        break
    else:
        raise Refused(f"{fixture.name}: no seed from {first_seed} on gives a proposal {name} that is safe")
    parts = {"dflash": (), "dflash2": ("candidate_selector.",), "dspark": ("markov_head.",)}[family]
    params = fixture.params(seed, *parts) | {"temperature": temperature}
    if columns is not None:
        params["target_vocab"] = vocab
    return params, datasets | {
        "logits": logits, "anchor": torch.tensor([anchor], dtype=torch.int32),
        "token": found["tokens"].to(torch.int32), "share": share,
        "candidate": found["candidates"].to(torch.int32).contiguous(), "probability": probability,
    }  # fmt: skip


def ordered(logits: torch.Tensor, fixture: Fixture) -> bool:
    """Whether the candidates and their order hang on no less than SAFE."""
    best = torch.topk(logits.double(), min(fixture.model.candidate_selector.top_k + 1, logits.shape[-1])).values
    return bool((best[..., :-1] - best[..., 1:]).min() > SAFE)


def output(model, fixture: Fixture, rows: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Logits as upstream makes them: DSpark's are the plain product, the others' have multiplier and softcap."""

    def plain(hidden):
        return torch.nn.functional.linear(hidden, head)

    return plain(rows) if fixture.checkpoint.family == "dspark" else model.compute_logits(rows, plain)


def logits_case(fixture: Fixture, seed: int) -> tuple[dict, dict]:
    """Rows of three sizes, so that the softcap, where there is one, is hardly felt and is felt in full."""
    rng = generator(seed)
    scale = np.array([0.3, 1.0, 6.0])[:, None]
    rows = float32(scale * rng.standard_normal((3, fixture.hidden)))
    head = float32(rng.normal(0.0, 2.0, (33, fixture.hidden)))
    wide_rows, wide_head = rows.double(), head.double()
    with arithmetic():
        logits = output(fixture.model, fixture, wide_rows, wide_head)
    params = {"checkpoint": f"fixtures/small/{fixture.name}", "seed": seed, "tensors": {}}
    return params, {"rows": rows, "head": head, "logits": logits}


def cases(small: Path) -> Iterator[tuple[str, dict, dict]]:
    """The groups of proposals and logits: path, params and datasets."""
    plan = {
        "tiny-embed": ((0.7, None), (0.0, 40), (1.3, 40)),
        "tiny-embed-dflash2": ((0.7, None), (0.0, 64), (1.3, 64)),
        "tiny-embed-dspark": ((0.7, None), (0.0, 160), (1.3, 160)),
        "tiny-dflash2": ((1.3, None),),
        "tiny-dspark-gated": ((1.3, None),),
        "tiny-dspark-rnn": ((0.7, None),),
    }
    for number, (name, wanted) in enumerate(plan.items()):
        fixture = Fixture.open(small / name)
        for which, (temperature, columns) in enumerate(wanted):
            kind = ("greedy" if temperature == 0 else "sampled") + ("" if columns is None else "-reduced")
            case = proposal_case(fixture, kind, 6000 + 100 * number + 10 * which, temperature, columns)
            yield f"proposal/{name}.{kind}", *case
    for number, name in enumerate(("tiny-dflash2", "tiny-embed", "tiny-dspark")):
        yield f"logits/{name}", *logits_case(Fixture.open(small / name), 7000 + number)
