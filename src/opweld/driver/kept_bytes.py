"""Bytes that a forward keeps for its gradients: as it is planned, and what PyTorch itself keeps.

All are counted by autograd's own hook, the planned forward as tensors without elements. Parameters,
buffers and inputs do not count, as they stay anyway; what shares memory counts once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from opweld.capture.dtypes import TO_TORCH
from opweld.driver.sizes import sizes_of
from opweld.ir.attrs import Operand, TorchLiteral
from opweld.ir.expr import Expr
from opweld.ir.graph import Node
from opweld.ir.ops import Kind, Op
from opweld.ir.original import BackwardPart, Part
from opweld.ir.plan import Group, Sizes, number_at
from opweld.ir.types import TensorType

META = torch.device("meta")
COMPILED = "aot_eager_decomp_partition"
"""The backend of torch.compile that keeps what the default one does, and compiles nothing."""


def kept_text(
    part: Part,
    backwards: Iterable[BackwardPart],
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:
    """What is kept for gradients at the example call: by the forward of `part`, and by that of the
    model in eager PyTorch and under torch.compile.
    """
    trained = frozenset(f"self.{n}" for n, p in model.named_parameters() if p.requires_grad)
    planned = _Planned(part, {each.operator: each for each in backwards}, trained, sizes_of(part))
    tensors = (t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
    staying = [*model.parameters(), *model.buffers(), *tensors]
    ours = kept_by(planned.run, planned.sources())
    eager = kept_by(lambda: model(*args, **kwargs), staying)
    parts = [f"{megabytes(ours)} by this plan", f"{megabytes(eager)} by eager PyTorch"]
    try:
        compiled = torch.compile(copy.deepcopy(model), backend=COMPILED)
        staying += [*compiled.parameters(), *compiled.buffers()]
        theirs = kept_by(lambda: compiled(*args, **kwargs), staying)
        parts.append(f"{megabytes(theirs)} by torch.compile")
    except Exception as error:
        parts.append(f"torch.compile fails ({type(error).__name__})")
    return f"kept for gradients: {', '.join(parts)}"


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.4g} MB"


def kept_by(forward: Callable[[], Any], staying: Iterable[torch.Tensor]) -> int:
    """The bytes that `forward()` keeps beside what is `staying`."""
    without = {_memory(tensor) for tensor in staying}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(_memory(tensor), tensor)
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in without)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class _Fused(torch.autograd.Function):
    """Of a fused group: `results` are empty, and operands are kept, and what is `beside` them."""

    @staticmethod
    def forward(
        ctx: Any, results: list[torch.Tensor], beside: list[torch.Tensor], *operands: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(*operands, *beside)
        ctx.mark_non_differentiable(*(t for t in results if not t.is_floating_point()))
        return tuple(results)


@dataclass(slots=True)
class _Planned:
    """A planned forward on tensors without elements, at `sizes`; `trained` are the accesses of the
    parameters that want gradients.
    """

    part: Part
    backwards: Mapping[str, BackwardPart]
    trained: frozenset[str]
    sizes: Sizes
    values: dict[int, Any] = field(default_factory=dict)

    def run(self) -> None:
        for group in self.part.plan.groups:
            if group.fused:
                self._fused(group)
            else:
                for node in group.nodes:
                    self.of(node)

    def sources(self) -> list[torch.Tensor]:
        graph = self.part.plan.graph
        return [self.of(node) for node in (*graph.inputs, *graph.weights)]

    def of(self, node: Node) -> Any:
        """The value of a node of the plan's graph."""
        if node.serial not in self.values:
            self.values[node.serial] = self._value(node)
        return self.values[node.serial]

    def _value(self, node: Node) -> Any:
        if node.op is Op.CALL:
            return self._call(node)
        if node.op is Op.ITEM:
            return self.of(node.inputs[0])[node.attrs.index]
        if node.kind is Kind.VIEW and len(node.inputs) == 1:
            shape = self._empty(node.type).shape
            return self.of(node.inputs[0]).as_strided(shape, [0] * len(shape))
        wants = node.op is Op.WEIGHT and node.attrs.access in self.trained
        return self._empty(node.type).requires_grad_(wants)

    def _empty(self, kind: TensorType, sizes: Sizes | None = None) -> torch.Tensor:
        at = self.sizes if sizes is None else sizes
        shape = [number_at(size, at) for size in kind.shape]
        return torch.empty(shape, dtype=TO_TORCH[kind.dtype], device=META)

    def _fused(self, group: Group) -> None:
        results = [self._empty(node.type) for node in group.outputs]
        beside = self._beside(group, results)
        made = _Fused.apply(results, beside, *map(self.of, group.inputs))
        self.values.update(zip((node.serial for node in group.outputs), made, strict=True))

    def _beside(self, group: Group, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """What its gradients are computed from beside the operands."""
        backward = self.backwards.get(group.name)
        if backward is None:
            return []
        sizes = sizes_of(self.part, group)
        places = {node.serial: at for at, node in enumerate(group.as_compiled.outputs)}
        return [
            results[places[node.serial]] if node.serial in places else self._empty(node.type, sizes)
            for node in backward.vjp.kept
        ]

    def _call(self, node: Node) -> Any:
        given = [self._argument(each, node) for each in node.attrs.arguments]
        named = {name: self._argument(each, node) for name, each in node.attrs.keywords}
        namespace, name, overload = node.attrs.target.split(".")
        try:
            return getattr(getattr(getattr(torch.ops, namespace), name), overload)(*given, **named)
        except Exception:
            results = [self._empty(kind) for kind in node.attrs.results if kind is not None]
            made = _Fused.apply(results, [], *map(self.of, node.inputs))
            return made if len(node.attrs.results) > 1 else made[0]

    def _argument(self, value: Any, node: Node) -> Any:
        if isinstance(value, Operand):
            return self.of(node.inputs[value.index])
        if isinstance(value, TorchLiteral):
            return getattr(torch, value.text.removeprefix("torch."))
        if isinstance(value, Expr):
            return number_at(value, self.sizes)
        if isinstance(value, tuple):
            return [self._argument(each, node) for each in value]
        return value
