"""Runs a captured graph on a module's own inputs with the NumPy interpreter, calls by torch."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.capture import capture
from opweld.capture.arguments import bind
from opweld.capture.exporting.export import export_graph
from opweld.capture.modules.preserve import EVAL, unchanged
from opweld.ir.attrs import CallAttrs, Operand, TorchLiteral
from opweld.ir.contract import Capture, Contract, Needs, Variant
from opweld.ir.expr import Expr, evaluate
from opweld.ir.graph import Graph, Node
from opweld.ir.numpy.interpret import bind_sizes, interpret_outputs, numbered
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType

TORCH = {
    DType.BOOL: torch.bool,
    DType.U8: torch.uint8,
    DType.I8: torch.int8,
    DType.I16: torch.int16,
    DType.I32: torch.int32,
    DType.I64: torch.int64,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F32: torch.float32,
    DType.F64: torch.float64,
    DType.C64: torch.complex64,
    DType.C128: torch.complex128,
}


def captured(module: nn.Module, *args: Any, batch: bool = True, **kwargs: Any) -> Capture:
    """In both modes and under every autocast."""
    needs = Needs("both", ("bfloat16", "float16"))
    return capture(module.eval(), args, kwargs, name="model", batch=batch, needs=needs)


def captured_plainly(module: nn.Module, *args: Any, batch: bool = True, **kwargs: Any) -> Variant:
    """In eval alone: other states take most of the time."""
    return capture(module.eval(), args, kwargs, name="model", batch=batch).variants[0]


def graph_of(module: nn.Module, *args: Any, batch: bool = True, **kwargs: Any) -> Graph:
    return captured_plainly(module, *args, batch=batch, **kwargs).graph


class _Module(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)
        self.__dict__["function"] = function


def module_of(function: Any, **held: Any) -> nn.Module:
    """A module whose forward is `function(self, ...)` and that holds `held`."""
    return type("Model", (_Module,), {"forward": function})(function, **held)


def ops_of(graph: Graph) -> list[str]:
    """The operations in order, sources left out; a call by its operator."""
    sources = (Op.INPUT, Op.WEIGHT, Op.CONST)
    nodes = [node for node in graph.nodes() if node.op not in sources]
    return [n.attrs.target if n.op is Op.CALL else n.op.value for n in nodes]


def to_numpy(value: torch.Tensor) -> np.ndarray:
    value = value.detach().resolve_conj()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


def to_torch(value: np.ndarray, type: TensorType) -> torch.Tensor:
    return torch.tensor(np.ascontiguousarray(value)).reshape(value.shape).to(TORCH[type.dtype])


def environment(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The names that access expressions are written in."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return {"self": module, "torch": torch, **bound.arguments}


def run(variant: Variant, module: nn.Module, *args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of what the graph returns for these inputs, tensors as torch tensors."""
    graph = variant.graph
    names = environment(module, args, kwargs)
    sources = (*graph.inputs, *graph.weights)
    feeds = {n.attrs.access: to_numpy(eval(n.attrs.access, names)) for n in sources}
    sizes = bind_sizes(graph, feeds, {})
    caller = _Calls(graph, names, sizes, variant.autocast)
    outputs = interpret_outputs(graph, feeds, sizes, caller)
    tensors = [to_torch(o, n.type) for o, n in zip(outputs, graph.outputs, strict=True)]
    return pytree.tree_leaves(_placed(graph.structure, tensors, sizes))


def _placed(structure: Any, tensors: list[torch.Tensor], sizes: dict[str, int]) -> Any:
    if hasattr(structure, "index") and not isinstance(structure, tuple):
        return tensors[structure.index]
    kind, content = structure
    if kind == "const":
        return evaluate(content, sizes) if isinstance(content, Expr) else content
    if kind == "dict":
        return {key: _placed(item, tensors, sizes) for key, item in content}
    items = [_placed(item, tensors, sizes) for item in content]
    return items if kind == "list" else tuple(items)


class _Calls:
    """Evaluates the PyTorch calls of a graph, under autocast if the variant was captured so."""

    def __init__(
        self, graph: Graph, names: dict[str, Any], sizes: dict[str, int], autocast: str | None
    ) -> None:
        self.calls = {id(n.attrs): n for n in graph.nodes() if n.op is Op.CALL}
        self.names, self.sizes, self.autocast = names, sizes, autocast

    def __call__(self, attrs: CallAttrs, operands: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
        node: Node = self.calls[id(attrs)]
        pairs = zip(operands, node.inputs, strict=True)
        tensors = [to_torch(value, operand.type) for value, operand in pairs]
        if attrs.channels_last:
            tensors[0] = tensors[0].movedim(-1, 1)
        given = numbered(attrs, self.sizes)
        keywords = {key: self._value(value, tensors) for key, value in given.keywords}
        arguments = [self._value(value, tensors) for value in given.arguments]
        with self._autocast(), torch.no_grad():
            results = self._function(attrs.target)(*arguments, **keywords)
        several = results if isinstance(results, tuple | list) else (results,)
        if attrs.channels_last:
            several = tuple(result.movedim(1, -1) for result in several)
        return tuple(to_numpy(r) if isinstance(r, torch.Tensor) else r for r in several)

    def _autocast(self) -> Any:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=getattr(torch, self.autocast))

    @staticmethod
    def _function(target: str) -> Any:
        if target == "torch.tensor":
            return torch.tensor
        namespace, name, overload = target.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)

    def _value(self, value: Any, tensors: list[torch.Tensor]) -> Any:
        if isinstance(value, Operand):
            return tensors[value.index]
        if isinstance(value, TorchLiteral):
            return eval(value.text, self.names)
        return [self._value(v, tensors) for v in value] if isinstance(value, tuple) else value


def exported(module: nn.Module, *args: Any) -> Variant:
    """One capture at fixed sizes, without the comparisons that the whole stage makes."""
    arguments = bind(module.eval(), args, {})
    with unchanged(module, EVAL):
        graph = export_graph(module, arguments, frozenset(), "model").graph
    return Variant("model", None, graph, Contract("", (), (), (), ()))


def assert_row(module: nn.Module, *args: Any) -> Graph:
    """The exported graph computes what the module does. Returns the graph."""
    variant = exported(module, *args)
    assert_agrees(variant, module, *args)
    return variant.graph


def assert_same(module: nn.Module, *args: Any, batch: bool = True, **kwargs: Any) -> Graph:
    """The captured graph computes what the module does, on these inputs. Returns the graph."""
    variant = captured_plainly(module, *args, batch=batch, **kwargs)
    assert_agrees(variant, module, *args, **kwargs)
    return variant.graph


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """Wider for 16-bit floats: eager rounds after each operation, kernels only at the end."""
    steps = {torch.bfloat16: 2**-6, torch.float16: 2**-9}
    return {"rtol": steps[dtype], "atol": steps[dtype]} if dtype in steps else {}


def assert_agrees(variant: Variant, module: nn.Module, *args: Any, **kwargs: Any) -> None:
    with torch.no_grad():
        expected = pytree.tree_leaves(module(*args, **kwargs))
    for ours, theirs in zip(run(variant, module, *args, **kwargs), expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance(theirs.dtype))
        else:
            assert ours == theirs and type(ours) is type(theirs)
