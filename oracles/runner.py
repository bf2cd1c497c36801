"""Runs an upstream model on one set of inputs in one dtype.

Recording must not change the run: run_observed proves it bit for bit against an unobserved run, with and without a
cache. The float64 run is lifted (lift.py) and must be float64 throughout.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import dflash.model as upstream
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from capture import Capture, code_of
from inputs import Inputs
from lift import Float64Only, LiftError
from refusal import Refused
from spacing import has_gaps, masks_by_position


@contextmanager
def partial_rotation(model, rotary_dim: int):
    """Lets upstream's rotation see only the leading part of each head; the rest passes through."""
    if rotary_dim == model.layers[0].self_attn.head_dim:
        yield
        return
    code = code_of(model)
    original = code.apply_rotary_pos_emb

    def leading(q, k, cos, sin, **kwargs):
        q_turned, k_turned = original(q[..., :rotary_dim], k[..., :rotary_dim], cos, sin, **kwargs)
        return (
            torch.cat([q_turned, q[..., rotary_dim:]], dim=-1),
            torch.cat([k_turned, k[..., rotary_dim:]], dim=-1),
        )

    code.apply_rotary_pos_emb = leading
    try:
        yield
    finally:
        code.apply_rotary_pos_emb = original


class Runner:
    """One model in one dtype on one set of inputs."""

    def __init__(self, model, inputs: Inputs, dtype: torch.dtype, rotary_dim: int, masks=None):
        self.model = model
        self.masks = masks  # (rows, keys) -> attention mask, for models that leave it to their caller
        self.dtype = dtype
        self.rotary_dim = rotary_dim
        self.target_hidden = inputs.target_hidden.to(dtype)[None]
        self.noise = inputs.noise(dtype)[None]
        self.positions = inputs.positions[None]
        self.context = inputs.target_hidden.shape[0]
        self.embedded = inputs.embedding is not None
        self.lift_note = ""
        self.lift: Float64Only | None = None  # of the latest forward under arithmetic

    @contextmanager
    def arithmetic(self):
        """Float64 runs under the lifting mode, with attention decomposed into operations that the mode can see."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(partial_rotation(self.model, self.rotary_dim))
            stack.enter_context(masks_by_position(self.positions[0]))
            if self.dtype == torch.float64:
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                self.lift = Float64Only()
                stack.enter_context(self.lift.around_rotary(self.model.rotary_emb))
                stack.enter_context(self.lift)
            yield

    def forward(self, rows: slice = slice(None), block_start: int | None = None, cache=None) -> torch.Tensor:
        """Context `rows`, then the block at context index `block_start` (the end of the context by default)."""
        hidden = self.target_hidden[:, rows]
        begin = rows.start or 0
        end = self.context if block_start is None else block_start
        positions = self.positions[:, begin : end + self.noise.shape[1]]
        block = self.noise.shape[1]
        masks = {} if self.masks is None else {"attention_mask": self.masks(block, end + block)}
        return self.model(
            position_ids=positions,
            **masks,
            noise_embedding=self.noise,
            target_hidden=hidden,
            past_key_values=cache,
            use_cache=cache is not None,
        )

    def cached(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """One forward over an empty cache, and the context's rows that it leaves there. The cache is made without the
        config and keeps every row in every layer; one with it drops what a window cannot see."""
        cache = DynamicCache()
        final = self.forward(cache=cache)
        cache.crop(-self.noise.shape[1])
        held = (("kv.k", [layer.keys for layer in cache.layers]), ("kv.v", [layer.values for layer in cache.layers]))
        return final, {name: torch.stack([rows[0].transpose(0, 1) for rows in layers]) for name, layers in held}

    def run_observed(self) -> dict[str, torch.Tensor]:
        """The stages up to `final`, after proving that observing and caching changed no bit of the run."""
        with self.arithmetic():
            plain = self.forward()
        with self.arithmetic(), Capture(self.model, self.rotary_dim).attached() as capture:
            observed = self.forward()
        self._check_lift()
        with self.arithmetic():
            cached, kept = self.cached()
        stages = capture.stages
        if self.embedded:
            stages["input"] = self.noise[0].clone()
        stages["rope.inv_freq"] = self.model.rotary_emb.inv_freq.detach().clone()
        stages |= kept
        self.check_stages(stages)
        for what, other in (("observing", observed), ("caching", cached), ("recording final", stages["final"][None])):
            if not torch.equal(plain, other):
                raise RuntimeError(f"{what} changed the reference's {self.dtype} output; the record cannot be trusted")
        return stages

    def check_stages(self, stages: dict[str, torch.Tensor]) -> None:
        for name, tensor in stages.items():
            expected = torch.float32 if name == "rope.inv_freq" else self.dtype
            if tensor.dtype not in (expected, torch.int32):
                raise RuntimeError(f"stage {name} came out as {tensor.dtype} in the {self.dtype} run")
            if not torch.isfinite(tensor).all():
                raise Refused(f"stage {name} of the {self.dtype} run holds a NaN or an infinity. Use other weights.")

    def _check_lift(self) -> None:
        """Each norm casts once and each table is one function of the angle: other counts mean another reference."""
        if self.lift is None:
            return
        layers = len(self.model.layers)
        found = (self.lift.lifted_casts, self.lift.lifted_angles)
        if found != (4 * layers + 2, 2):
            raise LiftError(
                f"expected {4 * layers + 2} lifted casts and 2 lifted angles, found {found[0]} and {found[1]}"
            )
        self.lift_note = f"{self.lift.operations} operations checked, {found[0]} casts and {found[1]} angles lifted"

    def cached_difference(self) -> float:
        """Largest difference between one forward and two rounds over upstream's own cache (informative)."""
        split = max(1, self.context // 2)
        with self.arithmetic():
            whole = self.forward()
            # z-lab's masks follow the keys that a cache trimmed to the window returns; a caller's own masks do not, and
            # neither do masks by position
            trimmed = self.masks is None and not has_gaps(self.positions[0])
            cache = upstream._make_cache(self.model.config) if trimmed else DynamicCache()
            self.forward(slice(0, split), split, cache)
            upstream._crop_to(cache, split)
            rounds = self.forward(slice(split, None), None, cache)
        return (whole.double() - rounds.double()).abs().max().item()
