"""Records every stage of the vocabulary up to `final` while an upstream model runs.

Stages are taken by module hooks; the three that lie inside functions are taken by wrapping those functions at their
own boundary. Shapes lose the batch dimension and are token-major. Running the model is runner.py, what follows `final`
is proposals.py.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager

import torch


def code_of(model):
    """The module that defines the model's layers, and with them the rotation that they call."""
    return sys.modules[type(model.layers[0].self_attn).__module__]


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
        for kind, name in (("attn", "attention_conv"), ("mlp", "mlp_conv")):
            conv = getattr(layer, name, None)
            if conv is not None:
                self._attach_conv(stack, f"{prefix}{kind}.conv_", conv)

    def _attach_conv(self, stack, prefix, conv) -> None:
        def dynamic(_module, _args, out):
            groups = out.shape[-1] // (2 * conv.kernel_size)
            self.record(prefix + "dyn", out.view(*out.shape[:-1], 2, conv.kernel_size, groups))

        stack.callback(conv.kernel_projection.register_forward_hook(dynamic).remove)
        prepare, finish = conv.prepare, conv.finish

        def observed_prepare(hidden, *block):  # NeMo's convolution is told the block's length too
            result = prepare(hidden, *block)
            self.record(prefix + "in", result[0])
            return result

        def observed_finish(hidden, kernel, *block):
            result = finish(hidden, kernel, *block)
            self.record(prefix + "out", result)
            return result

        conv.prepare, conv.finish = observed_prepare, observed_finish
        stack.callback(lambda: (delattr(conv, "prepare"), delattr(conv, "finish")))

    def _wrap_rotation(self, stack) -> None:
        code = code_of(self.model)
        original = code.apply_rotary_pos_emb

        def observed(q, k, cos, sin, **kwargs):
            q, k = original(q, k, cos, sin, **kwargs)
            self.record(f"layers.{self._layer}.attn.q_rope", q.transpose(1, 2))
            self.record(f"layers.{self._layer}.attn.k_rope", k.transpose(1, 2))
            return q, k

        code.apply_rotary_pos_emb = observed
        stack.callback(setattr, code, "apply_rotary_pos_emb", original)
