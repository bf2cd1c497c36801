"""Runs the reference in float64 with nothing left in float32.

The reference casts to float32 by hand in its norms, its rotation and its softmax, so a model turned to float64 still
computes there in float32. The modes below sit under every torch operation: they undo those casts, look at every
operand and refuse to go on when a narrower float takes part. What the stages mean is left to capture.py.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

NARROW = (torch.float32, torch.bfloat16, torch.float16)

# The only operations that may touch float32, and only while the angles are formed: position and frequency are float32
# and so is their product, in every implementation, so that rounding belongs to the model and not to its precision.
ANGLE_OPS = frozenset(
    {
        aten._to_copy.default,
        aten._unsafe_view.default,
        aten.alias.default,
        aten.bmm.default,
        aten.cat.default,
        aten.expand.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)


class LiftError(RuntimeError):
    """A float narrower than float64 took part in a run that must be float64 throughout."""


def narrow_tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW]


def describe(tensors):
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors)


class Float64Only(TorchDispatchMode):
    """Turns casts to float32 into float64 no-ops and raises LiftError when a narrower float takes part."""

    def __init__(self):
        super().__init__()
        self.operations = 0
        self.lifted_casts = 0
        self.lifted_angles = 0
        self._in_angles = False

    @contextmanager
    def around_rotary(self, rotary):
        """Marks the forward of `rotary` as the place where float32 angles are made."""

        def enter(*_):
            self._in_angles = True

        def leave(*_):
            self._in_angles = False

        handles = [rotary.register_forward_pre_hook(enter), rotary.register_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._in_angles = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        self.operations += 1
        if self._in_angles and func in (aten.cos.default, aten.sin.default) and args[0].dtype == torch.float32:
            self.lifted_angles += 1
            return func(args[0].double())
        if func is aten._to_copy.default and kwargs.get("dtype") in NARROW and args[0].dtype == torch.float64:
            self.lifted_casts += 1
            return args[0].clone()
        angle_op = self._in_angles and func in ANGLE_OPS
        if not angle_op:
            self._refuse(func, "reads", narrow_tensors((args, kwargs)))
        result = func(*args, **kwargs)
        if not angle_op:
            self._refuse(func, "writes", narrow_tensors(result))
        return result

    @staticmethod
    def _refuse(func, verb, found):
        if found:
            raise LiftError(
                f"The float64 run is not float64 throughout: {func} {verb} {describe(found)}. Expected only float64 "
                "outside the rotary angle. Find the operation in the reference and lift it in oracles/lift.py."
            )


class Float64Factories(TorchDispatchMode):
    """Evaluates a formula that asks for float32 tensors by name in float64 instead."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        found = narrow_tensors((args, kwargs))
        result = func(*args, **kwargs)
        Float64Only._refuse(func, "takes part with", found + narrow_tensors(result))
        return result
