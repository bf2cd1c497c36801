"""Isolated inputs and float64 results for the convolution, the selector, the Markov heads and the confidence head.

Each runs upstream's module with a fixture checkpoint's own weights on seeded rows. Rows and logits are float32, the
results are computed from exactly those. Seeds are searched until a case shows what it is for: a predecessor that
changes the winner at the first slot and at a later one, with every decision far from float32's error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import reference
from lift import Float64Only
from proposals import observed_select, select_stages, survival_window, survivals
from refusal import Refused
from weights import Tensors

SLOTS = 6
SEEDS = 20000
SAFE = 1e-3  # least distance of two scores that a token hangs on
THRESHOLDS = (0.5, 0.7, 0.05)


@dataclass
class Fixture:
    """A small checkpoint's float64 model and what identifies its weights."""

    name: str
    checkpoint: reference.Checkpoint
    tensors: Tensors
    model: torch.nn.Module

    @classmethod
    def open(cls, directory: Path) -> Fixture:
        checkpoint = reference.open_checkpoint(directory)
        tensors = Tensors.scan(directory)
        return cls(directory.name, checkpoint, tensors, reference.build(checkpoint, tensors, torch.float64))

    def params(self, seed: int, *parts: str) -> dict:
        """Checkpoint, seed, and the digests of the tensors whose names hold one of `parts`."""
        used = {name: record["sha256"] for name, record in self.tensors.record.items() if any(p in name for p in parts)}
        return {"checkpoint": f"fixtures/small/{self.name}", "seed": seed, "tensors": used}

    @property
    def hidden(self) -> int:
        return self.model.fc.out_features

    @property
    def vocab(self) -> int:
        return int(self.checkpoint.value("selector_vocab_size") or self.model.config.vocab_size)


@contextmanager
def arithmetic():
    with torch.no_grad(), Float64Only():
        yield


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox([seed, 2]))


def float32(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def conv_case(fixture: Fixture, sublayer: str, rows: int, seed: int) -> tuple[dict, dict]:
    """finish_dyn is prepare's dyn rounded to float32, so that finish too starts from what is stored."""
    rng = generator(seed)
    conv = getattr(fixture.model.layers[0], f"{sublayer}_conv")
    x, y = (float32(rng.standard_normal((rows, fixture.hidden))) for _ in range(2))
    wide_x, wide_y = x.double()[None], y.double()[None]  # widened before the mode that refuses float32
    with arithmetic():
        dyn = conv.kernel_projection(wide_x).view(rows, 2, conv.kernel_size, -1)
        prepared, half = conv.prepare(wide_x)
    if not torch.equal(half[0], dyn[:, 1]):
        raise RuntimeError("upstream's prepare no longer returns the second half of its projection")
    finish_dyn = dyn.float()
    wide_dyn = finish_dyn.double()[None]
    with arithmetic():
        finished = conv.finish(wide_y, wide_dyn[:, :, 1])
    params = fixture.params(seed, f"layers.0.{sublayer}_conv.")
    params |= {"layer": 0, "sublayer": sublayer, "kernel_size": conv.kernel_size, "group_size": conv.group_size}
    return params, {"prepare_x": x, "prepare_dyn": dyn, "prepare_y": prepared[0],
                    "finish_x": y, "finish_dyn": finish_dyn, "finish_y": finished[0]}  # fmt: skip


def make_logits(rng: np.random.Generator, vocab: int, full: int, kind: str, top_k: int) -> torch.Tensor:
    """[SLOTS, full]; ids from `vocab` on lie far below. `ties`: equal values inside the top and across its end."""
    logits = rng.normal(0.0, 2.5, (SLOTS, full)).astype(np.float32)
    logits[:, vocab:] -= 40.0
    if kind == "collapsed":  # near 20, bfloat16 has eight values to the unit: many neighbours become one
        logits = torch.from_numpy(logits + 20.0).to(torch.bfloat16).float().numpy()
    if kind == "ties":
        for row in logits:
            order = np.argsort(-row, kind="stable")
            row[order[2]] = row[order[1]]
            row[order[top_k : top_k + 2]] = row[order[top_k - 1]]
    return torch.from_numpy(logits)


def apart(scores: torch.Tensor) -> bool:
    best = torch.topk(scores, 2).values
    return bool((best[..., 0] - best[..., 1]).min() > SAFE)


def depends_on_predecessor(walk, anchor: int, path: list[int], alone: list[int], vocab: int, exact: bool) -> bool:
    """walk(slot, prev) is the winner at a slot after `prev`. True when at the first slot and at a later one the winner
    is another than without a predecessor (`alone`), and another predecessor would have changed it."""
    if path[0] == alone[0] or walk(0, (anchor + vocab // 2) % vocab) == path[0]:
        return False
    for slot in range(1, len(path)):
        here, other = walk(slot, path[slot - 1]), walk(slot, (path[slot - 1] + vocab // 2) % vocab)
        if exact and here != path[slot]:
            raise RuntimeError("a walk begun in the middle differs; the head keeps state between slots")
        if here != other and path[slot] != alone[slot]:
            return True
    return False


def selector_case(fixture: Fixture, kind: str, first_seed: int) -> tuple[dict, dict]:
    selector, vocab = fixture.model.candidate_selector, fixture.vocab
    for seed in range(first_seed, first_seed + SEEDS):
        rng = generator(seed)
        rows = float32(rng.standard_normal((SLOTS, fixture.hidden)))
        logits = make_logits(rng, vocab, fixture.model.config.vocab_size, kind, selector.top_k)
        anchor = int(rng.integers(vocab))
        wide = (rows.double()[None], logits.double()[None])
        with arithmetic():
            # where values tie, upstream's own top-k may keep another id than the lowest
            stages = select_stages(selector, *wide, torch.tensor([anchor]), compare=kind == "plain")

            def walk(slot, previous):
                with observed_select():
                    part = [t[:, slot : slot + 1] for t in wide]
                    return selector.select(*part, torch.tensor([previous]), 0.0)[0].item()

            path = stages["select.path"].tolist()
            alone = stages["select.topk_ids"][:, 0].tolist()
            if apart(stages["select.scores"]) and depends_on_predecessor(walk, anchor, path, alone, vocab, True):
                break
    else:
        raise Refused(f"{fixture.name}: no seed from {first_seed} on gives a {kind} selector case")
    params = fixture.params(seed, "candidate_selector.") | {"kind": kind, "top_k": selector.top_k}
    return params, {
        "rows": rows, "logits": logits, "anchor": torch.tensor([anchor], dtype=torch.int32),
        "hidden": stages["select.hidden"], "topk_values": stages["select.topk_values"],
        "topk_ids": stages["select.topk_ids"].to(torch.int32), "scores": stages["select.scores"],
        "path": stages["select.path"].to(torch.int32),
    }  # fmt: skip


def markov_case(fixture: Fixture, kind: str, first_seed: int) -> tuple[dict, dict]:
    head, vocab = fixture.model.markov_head, fixture.vocab
    for seed in range(first_seed, first_seed + SEEDS):
        rng = generator(seed)
        rows = float32(rng.standard_normal((SLOTS, fixture.hidden)))
        logits = make_logits(rng, vocab, vocab, kind, 2)
        anchor = int(rng.integers(vocab))
        wide_rows, wide_logits = rows.double()[None], logits.double()[None]
        with arithmetic():

            def draft(slot, previous):
                return head.sample_block_tokens(
                    wide_logits[:, slot:],
                    first_prev_token_ids=torch.tensor([previous]),
                    hidden_states=wide_rows[:, slot:],
                )

            tokens, corrected = (t[0] for t in draft(0, anchor))

            def walk(slot, previous):
                return draft(slot, previous)[0][0, 0].item()

            alone = wide_logits[0].argmax(-1).tolist()
            stateless = head.markov_head_type != "rnn"
            if apart(corrected) and depends_on_predecessor(walk, anchor, tokens.tolist(), alone, vocab, stateless):
                break
    else:
        raise Refused(f"{fixture.name}: no seed from {first_seed} on gives a {kind} Markov case")
    params = fixture.params(seed, "markov_head.") | {"kind": kind, "head": head.markov_head_type}
    return params, {"rows": rows, "logits": logits, "anchor": torch.tensor([anchor], dtype=torch.int32),
                    "markov_logits": corrected, "tokens": tokens.to(torch.int32)}  # fmt: skip


def confidence_case(fixture: Fixture, first_seed: int) -> tuple[dict, dict]:
    """Verify windows under the survival rule, anchor included, cap SLOTS + 1."""
    for seed in range(first_seed, first_seed + SEEDS):
        rng = generator(seed)
        rows = float32(rng.standard_normal((SLOTS, fixture.hidden)))
        previous = torch.from_numpy(rng.integers(fixture.vocab, size=SLOTS))
        wide = rows.double()[None]
        with arithmetic():
            raw = fixture.model.predict_confidence(wide, prev_token_ids=previous[None])[0]
        windows = [survival_window(raw.tolist(), threshold, SLOTS + 1) for threshold in THRESHOLDS]
        safe = all(abs(s - threshold) > SAFE for s in survivals(raw.tolist()) for threshold in THRESHOLDS)
        if safe and len(set(windows)) == len(windows):
            break
    else:
        raise Refused(f"{fixture.name}: no seed from {first_seed} on gives three different windows")
    params = fixture.params(seed, "confidence_head.", "markov_w1") | {
        "with_markov": fixture.model.confidence_head_with_markov, "cap": SLOTS + 1,
        "windows": [{"policy": "survival", "threshold": threshold} for threshold in THRESHOLDS],
    }  # fmt: skip
    return params, {"rows": rows, "previous": previous.to(torch.int32), "raw": raw,
                    "window": torch.tensor(windows, dtype=torch.int32)}  # fmt: skip


def cases(small: Path) -> Iterator[tuple[str, dict, dict]]:
    """Every group but those of yarn: its path, params and datasets."""
    for name in ("tiny-dflash2", "tiny-dflash2-k3"):
        fixture = Fixture.open(small / name)
        taps = fixture.model.layers[0].attention_conv.kernel_size
        for sublayer in ("attention", "mlp"):
            for rows in (taps - 1, taps, fixture.model.block_size):  # upstream cannot shift fewer rows than taps - 1
                yield f"conv/{name}.{sublayer}.{rows}", *conv_case(fixture, sublayer, rows, 100 + rows)
        for number, kind in enumerate(("plain", "ties", "collapsed")):
            yield f"selector/{name}.{kind}", *selector_case(fixture, kind, 1000 * (1 + number))
    for name in ("tiny-dspark", "tiny-dspark-gated", "tiny-dspark-rnn"):
        fixture = Fixture.open(small / name)
        for number, kind in enumerate(("plain", "collapsed")):
            yield f"markov/{name}.{kind}", *markov_case(fixture, kind, 1000 * (1 + number))
        if fixture.model.confidence_head is not None:
            yield f"confidence/{name}", *confidence_case(fixture, 5000)
