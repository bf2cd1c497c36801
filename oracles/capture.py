"""Runs the upstream model and records every stage of the vocabulary.

Stages are taken by module hooks; the three that lie inside functions are taken by wrapping those functions at their
own boundary. Recording must not change the run: run_observed proves it bit for bit against an unobserved run, with and
without a cache. Shapes lose the batch dimension and are token-major.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import dflash.model as upstream
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from inputs import Inputs
from lift import Float64Only, LiftError
from reference import Refused


class Capture:
    """Collects stages by name while attached to a model."""

    def __init__(self, model, rotary_dim: int):
        self.model = model
        self.rotary_dim = rotary_dim
        self.stages: dict[str, torch.Tensor] = {}
        self._pieces: dict[str, list[torch.Tensor]] = {}
        self._layer = -1

    def record(self, name: str, tensor: torch.Tensor) -> None:
        if name in self.stages:
            raise RuntimeError(f"stage {name} was recorded twice; the hooks no longer fit the reference")
        self.stages[name] = tensor.detach().squeeze(0).clone()

    def _piece(self, name: str, tensor: torch.Tensor) -> None:
        """Context rows, then block rows: the reference projects them in two calls."""
        pieces = self._pieces.setdefault(name, [])
        pieces.append(tensor.detach().clone())
        if len(pieces) == 2:
            self.record(name, torch.cat(pieces, dim=1))

    def _rotary(self, _module, _args, output) -> None:
        half = self.rotary_dim // 2
        for name, table in zip(("rope.cos", "rope.sin"), output, strict=True):
            if table.shape[-1] != self.rotary_dim or not torch.equal(table[..., :half], table[..., half:]):
                raise RuntimeError(f"{name}: expected two equal halves of {half} columns, found {list(table.shape)}")
            self.record(name, table[..., :half])

    @contextmanager
    def attached(self):
        with ExitStack() as stack:

            def output(module, name, take=self.record):
                stack.callback(module.register_forward_hook(lambda _m, _a, out: take(name, out)).remove)

            def source(module, name):
                stack.callback(module.register_forward_pre_hook(lambda _m, args: self.record(name, args[0])).remove)

            model = self.model
            output(model.fc, "ctx.fc")
            output(model.hidden_norm, "ctx.features")
            stack.callback(model.rotary_emb.register_forward_hook(self._rotary).remove)
            for index, layer in enumerate(model.layers):
                self._attach_layer(stack, output, source, index, layer)
            output(model.norm, "final")
            self._wrap_rotation(stack)
            yield self

    def _attach_layer(self, stack, output, source, index, layer) -> None:
        prefix = f"layers.{index}."
        attention, mlp = layer.self_attn, layer.mlp

        def enter(*_):
            self._layer = index

        stack.callback(attention.register_forward_pre_hook(enter).remove)
        output(layer.input_layernorm, prefix + "attn.norm")
        output(attention.q_proj, prefix + "attn.q_proj")
        output(attention.k_proj, prefix + "attn.k_proj", self._piece)
        output(attention.v_proj, prefix + "attn.v", self._piece)
        output(attention.q_norm, prefix + "attn.q_norm")
        output(attention.k_norm, prefix + "attn.k_norm")
        source(attention.o_proj, prefix + "attn.context")
        output(attention.o_proj, prefix + "attn.o_proj")
        source(layer.post_attention_layernorm, prefix + "attn.residual")
        output(layer.post_attention_layernorm, prefix + "mlp.norm")
        output(mlp.gate_proj, prefix + "mlp.gate")
        output(mlp.up_proj, prefix + "mlp.up")
        source(mlp.down_proj, prefix + "mlp.act")
        output(mlp.down_proj, prefix + "mlp.down")
        output(layer, prefix + "out")
        for kind, conv in (("attn", layer.attention_conv), ("mlp", layer.mlp_conv)):
            if conv is not None:
                self._attach_conv(stack, f"{prefix}{kind}.conv_", conv)

    def _attach_conv(self, stack, prefix, conv) -> None:
        def dynamic(_module, _args, out):
            groups = out.shape[-1] // (2 * conv.kernel_size)
            self.record(prefix + "dyn", out.view(*out.shape[:-1], 2, conv.kernel_size, groups))

        stack.callback(conv.kernel_projection.register_forward_hook(dynamic).remove)
        prepare, finish = conv.prepare, conv.finish

        def observed_prepare(hidden):
            result = prepare(hidden)
            self.record(prefix + "in", result[0])
            return result

        def observed_finish(hidden, kernel):
            result = finish(hidden, kernel)
            self.record(prefix + "out", result)
            return result

        conv.prepare, conv.finish = observed_prepare, observed_finish
        stack.callback(lambda: (delattr(conv, "prepare"), delattr(conv, "finish")))

    def _wrap_rotation(self, stack) -> None:
        original = upstream.apply_rotary_pos_emb

        def observed(q, k, cos, sin, **kwargs):
            q, k = original(q, k, cos, sin, **kwargs)
            self.record(f"layers.{self._layer}.attn.q_rope", q.transpose(1, 2))
            self.record(f"layers.{self._layer}.attn.k_rope", k.transpose(1, 2))
            return q, k

        upstream.apply_rotary_pos_emb = observed
        stack.callback(setattr, upstream, "apply_rotary_pos_emb", original)


@contextmanager
def partial_rotation(rotary_dim: int, head_dim: int):
    """Lets upstream's rotation see only the leading part of each head; the rest passes through."""
    if rotary_dim == head_dim:
        yield
        return
    original = upstream.apply_rotary_pos_emb

    def leading(q, k, cos, sin, **kwargs):
        q_turned, k_turned = original(q[..., :rotary_dim], k[..., :rotary_dim], cos, sin, **kwargs)
        return (
            torch.cat([q_turned, q[..., rotary_dim:]], dim=-1),
            torch.cat([k_turned, k[..., rotary_dim:]], dim=-1),
        )

    upstream.apply_rotary_pos_emb = leading
    try:
        yield
    finally:
        upstream.apply_rotary_pos_emb = original


class Runner:
    """One model in one dtype on one set of inputs."""

    def __init__(self, model, inputs: Inputs, dtype: torch.dtype, rotary_dim: int):
        self.model = model
        self.dtype = dtype
        self.rotary_dim = rotary_dim
        self.target_hidden = inputs.target_hidden.to(dtype)[None]
        self.noise = inputs.noise_embedding.to(dtype)[None]
        self.positions = inputs.positions[None]
        self.context = inputs.target_hidden.shape[0]
        self.lift_note = ""
        self.lift: Float64Only | None = None  # of the latest forward under _arithmetic

    @contextmanager
    def _arithmetic(self):
        """Float64 runs under the lifting mode, with attention decomposed into operations that the mode can see."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(partial_rotation(self.rotary_dim, self.model.layers[0].self_attn.head_dim))
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
        return self.model(
            position_ids=positions,
            noise_embedding=self.noise,
            target_hidden=hidden,
            past_key_values=cache,
            use_cache=cache is not None,
        )

    def run_observed(self) -> dict[str, torch.Tensor]:
        """All stages of one run, after proving that observing and caching changed no bit of it."""
        with self._arithmetic():
            plain = self.forward()
        with self._arithmetic(), Capture(self.model, self.rotary_dim).attached() as capture:
            observed = self.forward()
        self._check_lift()
        with self._arithmetic():
            # a cache without the config keeps every row in every layer; one with it drops what a window cannot see
            cache = DynamicCache()
            cached = self.forward(cache=cache)
            cache.crop(-self.noise.shape[1])
        stages = capture.stages
        stages["rope.inv_freq"] = self.model.rotary_emb.inv_freq.detach().clone()
        stages["kv.k"] = torch.stack([layer.keys[0].transpose(0, 1) for layer in cache.layers])
        stages["kv.v"] = torch.stack([layer.values[0].transpose(0, 1) for layer in cache.layers])
        for name, tensor in stages.items():
            expected = torch.float32 if name == "rope.inv_freq" else self.dtype
            if tensor.dtype != expected:
                raise RuntimeError(f"stage {name} came out as {tensor.dtype} in the {self.dtype} run")
            if not torch.isfinite(tensor).all():
                raise Refused(f"stage {name} of the {self.dtype} run holds a NaN or an infinity. Use other weights.")
        for what, other in (("observing", observed), ("caching", cached), ("recording final", stages["final"][None])):
            if not torch.equal(plain, other):
                raise RuntimeError(f"{what} changed the reference's {self.dtype} output; the record cannot be trusted")
        return stages

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
        with self._arithmetic():
            whole = self.forward()
            cache = upstream._make_cache(self.model.config)
            self.forward(slice(0, split), split, cache)
            upstream._crop_to(cache, split)
            rounds = self.forward(slice(split, None), None, cache)
        return (whole.double() - rounds.double()).abs().max().item()
