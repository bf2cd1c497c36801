"""The stages after `final`: logits, DFlash2's selector, DSpark's Markov and confidence heads.

All of it is the references' own code run under the arithmetic of runner.py. Upstream's top-k leaves the order of its
candidates and the choice between ties open, so it is given one that sorts; upstream's walk then scores in that order.
Token ids admit no tolerance, so a run of float32 must reach the ids of float64 with room to spare, else the inputs are
refused as a near tie (NearTie) and the generator takes the next seed.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch

from head import Head
from refusal import Refused

THRESHOLD = 0.5  # survival below it ends the verify window
# A decision is safe when its margin is this many times the largest float32 error of the values it compares.
MARGIN = 8.0

INTEGER_STAGES = ("select.topk_ids", "select.path", "markov.tokens", "confidence.window")


class NearTie(Refused):
    """An id that another correct float32 program might choose differently."""


@dataclass
class Proposer:
    """What the proposal stages need besides the backbone's rows."""

    checkpoint: object
    tensors: object
    anchor: int

    @property
    def first_row(self) -> int:
        return 0 if self.checkpoint.family == "dspark" else 1

    def stage_names(self) -> list[str]:
        names, geometry = ["logits"], self.checkpoint.config.dflash_config if self.checkpoint.family == "dspark" else {}
        if self.checkpoint.family == "dflash2":
            names += [f"select.{part}" for part in ("topk_values", "topk_ids", "hidden", "scores", "path")]
        if geometry.get("markov_rank"):
            names += ["markov.logits", "markov.tokens"]
        if geometry.get("enable_confidence_head", (geometry.get("confidence_head_alpha") or 0) > 0):
            names += ["confidence.raw", "confidence.window"]
        return names

    def run(self, runner, final: torch.Tensor) -> dict[str, torch.Tensor]:
        """The stages of one run; final [B, H] is that run's own."""
        model = runner.model
        head = Head(self.tensors, model.config.vocab_size, final.shape[-1], runner.dtype)
        rows = final[None, self.first_row :]
        anchor = torch.tensor([self.anchor])
        stages = {}
        with runner.arithmetic():
            if self.checkpoint.family == "dspark":
                logits = head(rows)
                stages["logits"] = logits[0]
                stages |= dspark_stages(model, rows, logits, anchor)
            else:
                logits = model.compute_logits(rows, head)
                stages["logits"] = logits[0]
                if self.checkpoint.family == "dflash2":
                    # bfloat16 rows have ties, which upstream's own top-k may break otherwise
                    compare = runner.dtype != torch.bfloat16
                    stages |= select_stages(model.candidate_selector, rows, logits, anchor, compare)
        stages = {name: tensor.to(torch.int32) if name in INTEGER_STAGES else tensor.to(runner.dtype)
                  for name, tensor in stages.items()}  # fmt: skip
        runner.check_stages(stages)
        return stages


def sorted_topk(logits: torch.Tensor, k: int, dim: int = -1, **_):
    """Descending, ties to the lower id."""
    values, ids = torch.sort(logits, dim=dim, descending=True, stable=True)
    return values[..., :k], ids[..., :k]


@contextmanager
def observed_select():
    """torch.topk sorts, and the scores that reach torch.argmax are kept."""
    scores, argmax = [], torch.argmax

    def keep(tensor, **kwargs):
        scores.append(tensor.detach().clone())
        return argmax(tensor, **kwargs)

    with mock.patch.object(torch, "topk", sorted_topk), mock.patch.object(torch, "argmax", keep):
        yield scores


def select_stages(selector, rows, logits, anchor, compare: bool = True) -> dict[str, torch.Tensor]:
    """rows [1, n, H], logits [1, n, V]; upstream's walk over sorted candidates, and over its own to compare."""
    hidden = []
    hook = selector.hidden_projection.register_forward_hook(lambda _m, _a, out: hidden.append(out.detach().clone()))
    try:
        with observed_select() as scores:
            path, ids, _ = selector.select(rows, logits, anchor, 0.0)
    finally:
        hook.remove()
    if len(hidden) != 1 or len(scores) != rows.shape[1]:
        raise RuntimeError("upstream's select no longer projects once and chooses once a slot; the hooks do not fit")
    plain = selector.select(rows, logits, anchor, 0.0)[0]
    if compare and not torch.equal(plain, path):
        raise NearTie(f"upstream's own order of candidates drafts {plain[0].tolist()}, sorted {path[0].tolist()}")
    return {
        "select.topk_values": logits.gather(-1, ids)[0],
        "select.topk_ids": ids[0],
        "select.hidden": hidden[0][0],
        "select.scores": torch.cat(scores),
        "select.path": path[0],
    }


def dspark_stages(model, rows, logits, anchor) -> dict[str, torch.Tensor]:
    stages = {}
    tokens = logits.argmax(dim=-1)
    if model.markov_head is not None:
        tokens, corrected = model.markov_head.sample_block_tokens(
            logits, first_prev_token_ids=anchor, hidden_states=rows
        )
        stages["markov.logits"], stages["markov.tokens"] = corrected[0], tokens[0]
    previous = torch.cat([anchor[None], tokens[:, :-1]], dim=1)
    raw = model.predict_confidence(rows, prev_token_ids=previous)
    if raw is not None:
        stages["confidence.raw"] = raw[0]
        window = survival_window(raw[0].tolist(), THRESHOLD, raw.shape[1] + 1)
        stages["confidence.window"] = torch.tensor([window], dtype=torch.int32)
    return stages


def survivals(raw: list[float]) -> list[float]:
    """Running products of sigmoid(raw)."""
    products, product = [], 1.0
    for value in torch.tensor(raw, dtype=torch.float64).sigmoid().tolist():
        product *= value
        products.append(product)
    return products


def survival_window(raw: list[float], threshold: float, cap: int) -> int:
    """Tokens to verify, anchor included, within [2, cap]: the leading slots whose survival reaches the threshold."""
    kept = 0
    for product in survivals(raw):
        if not product >= threshold:
            break
        kept += 1
    return min(max(1 + kept, 2), cap)


def check_margins(runs: dict[str, dict], top_k: int, selector_vocab: int) -> None:
    """Raises NearTie unless float64 and float32 agree on every id, and by more than float32 can err."""
    truth, single = runs["float64"], runs["float32"]
    for name in INTEGER_STAGES:
        if name in truth and not torch.equal(truth[name], single[name]):
            raise NearTie(f"{name} is {truth[name].tolist()} in float64 and {single[name].tolist()} in float32")

    def decided(name: str, ranks: int) -> None:
        """The `ranks` largest of each row must be apart from each other and from the next."""
        error = (single[name].double() - truth[name]).abs().max().item()
        best = torch.topk(truth[name], min(ranks + 1, truth[name].shape[-1])).values
        if best.shape[-1] == 1:  # one candidate leaves no choice
            return
        gap = (best[..., :-1] - best[..., 1:]).min().item()
        if gap <= MARGIN * max(error, sys.float_info.min):
            raise NearTie(f"{name} has values {gap:.3g} apart where float32 errs by {error:.3g}")

    if "select.topk_ids" in truth:
        decided("logits", top_k)
        decided("select.scores", 1)
        beyond = int(truth["select.topk_ids"].max())
        if beyond >= selector_vocab:
            raise NearTie(f"candidate {beyond} is not below selector_vocab_size {selector_vocab}")
    else:
        decided("markov.logits" if "markov.logits" in truth else "logits", 1)
    if "confidence.raw" in truth:
        for exact, rounded in zip(*(survivals(run["confidence.raw"].tolist()) for run in (truth, single)), strict=True):
            if abs(exact - THRESHOLD) <= MARGIN * max(abs(exact - rounded), 1e-7):
                raise NearTie(f"survival {exact!r} is too near to the threshold")
