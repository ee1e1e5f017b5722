"""An FX graph as a class of its own, with source, whose parameters and buffers are its state.

Dynamo hands over a flat graph of PyTorch's functions and takes parameters for arguments. The class
has them as attributes again, so that forms of weights may be kept, and sizes that Dynamo leaves
open are read from the arguments that have them.
"""

from __future__ import annotations

import hashlib
import keyword
import linecache
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import fx, nn

from opweld.capture.modules.origins import origin_of
from opweld.interface.embed import is_importable

CLASS = "Graph"
_HEAD = f'''class {CLASS}(torch.nn.Module):
    """The graph that torch.compile found at {{place}}."""

    def __init__(self, tensors, modules):
        super().__init__()
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        for name, module in modules.items():
            self.add_module(name, module)

'''
# `relu = torch.relu(x);  x = None` frees x early; the class is to be read.
_FREED = re.compile(r";  (\w+ = )+None$", re.MULTILINE)
_ASSIGNED = re.compile(r"(\s+)(\w+) = ")
_SCOPES = re.compile(r"(^|_)(modules|parameters|buffers)_")


class NoClass(Exception):
    """The graph cannot stand in a class of its own; the clause says why."""


@dataclass(frozen=True, slots=True)
class GraphClass:
    """The class, and which of the graph's arguments are what.

    `state` names those that are parameters and buffers by their positions, `inputs` are the
    positions of the others but for sizes; `sizes` are the positions of those.
    """

    cls: type[nn.Module]
    state: Mapping[int, str]
    inputs: tuple[int, ...]
    sizes: tuple[int, ...]
    modules: Mapping[str, nn.Module]
    place: str

    def module(self, args: Sequence[Any]) -> nn.Module:
        """An object with the parameters and buffers among these arguments."""
        return self.cls({name: args[n] for n, name in self.state.items()}, dict(self.modules))


def class_of(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> GraphClass:
    """The class of a graph, for arguments like these.

    Raises:
        NoClass: it holds something that has no source.
    """
    modules = dict(graph_module.named_children())
    for name, module in modules.items():
        if isinstance(module, fx.GraphModule) or not is_importable(type(module)):
            raise NoClass(f"the graph holds a region of its own ({name})")
    if _gives_gradients_unasked(graph_module.graph):
        raise NoClass("the graph switches gradients on for what it returns")
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    taken = {node.name for node in graph_module.graph.nodes} | set(modules) | set(dir(nn.Module))
    names = {n: _own_name(node.name, taken) for n, node in enumerate(placeholders)}
    state = {n: names[n] for n, given in enumerate(example_inputs) if _is_state(given)}
    sizes = {
        n: found
        for n, node in enumerate(placeholders)
        if n not in state and (found := _size_of(node, placeholders, state)) is not None
    }
    inputs = tuple(n for n in names if n not in state and n not in sizes)
    graph = _rewritten(graph_module.graph, names, state, sizes)
    place = next(filter(None, map(origin_of, graph_module.graph.nodes)), ("no line", ""))[0]
    return GraphClass(_define(graph, place), state, inputs, tuple(sizes), modules, place)


def _gives_gradients_unasked(graph: fx.Graph) -> bool:
    """Whether a result is made where gradients are switched on, and the caller has them off.

    A graph leaves them as its caller has them, so what it sets last is that.
    """
    now, on = False, set[fx.Node]()
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            now = bool(node.args[0])
        elif now and node.op != "output":
            on.add(node)
    output = next(node for node in graph.nodes if node.op == "output")
    return not now and not on.isdisjoint(output.all_input_nodes)


def _is_state(given: Any) -> bool:
    """Parameters, and what Dynamo marks as lying at one address: buffers of modules."""
    marked = getattr(given, "_dynamo_static_input_type", None) is not None
    return isinstance(given, nn.Parameter) or (isinstance(given, torch.Tensor) and marked)


def _own_name(name: str, taken: set[str]) -> str:
    """`l_self_modules_fc_parameters_weight_` is `fc_weight`; `taken` gets it, too."""
    short = _SCOPES.sub(r"\1", name.removeprefix("l_").strip("_")).removeprefix("self_")
    usable = short.isidentifier() and not keyword.iskeyword(short) and short not in taken
    short = short if usable else name
    taken.add(short)
    return short


def _size_of(
    node: fx.Node, placeholders: Sequence[fx.Node], state: Iterable[int]
) -> tuple[int, int] | None:
    """Position and dimension of an argument that has the size which this placeholder is."""
    size = node.meta.get("example_value")
    if not isinstance(size, torch.SymInt):
        return None
    for position, other in enumerate(placeholders):
        example = other.meta.get("example_value")
        if position in state or not isinstance(example, torch.Tensor):
            continue
        for dim, each in enumerate(example.shape):
            if isinstance(each, torch.SymInt) and each.node.expr == size.node.expr:
                return position, dim
    return None


def _rewritten(
    graph: fx.Graph,
    names: Mapping[int, str],
    state: Mapping[int, str],
    sizes: Mapping[int, tuple[int, int]],
) -> fx.Graph:
    """With attributes in the place of parameters, and sizes read from the arguments."""
    made, found = fx.Graph(), dict[fx.Node, fx.Node]()
    placeholders = graph.find_nodes(op="placeholder")
    for position, node in enumerate(placeholders):
        if position not in state and position not in sizes:
            found[node] = made.placeholder(names[position])
    for position, (of, dim) in sizes.items():
        if placeholders[position].users:
            read = made.call_method("size", (found[placeholders[of]], dim))
            found[placeholders[position]] = read
    for position, name in state.items():
        found[placeholders[position]] = made.create_node("get_attr", name, name=name)
    for node in graph.nodes:
        if node.op != "placeholder":
            found[node] = made.node_copy(node, lambda each: found[each])
    return made


def _define(graph: fx.Graph, place: str) -> type[nn.Module]:
    """The class, in a module whose text Python can show; the same one for the same text."""
    code = graph.python_code("self")
    body = _FREED.sub("", code.src).strip("\n")
    lines = [f"    {line}".rstrip() for line in _commented(body, graph)]
    text = _HEAD.format(place=place) + "\n".join(lines).rstrip() + "\n"
    name = f"opweld_graph_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = f"{name.removeprefix('opweld_')}.py"
        vars(module).update({**code.globals, "torch": torch})
        linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, module.__file__, "exec"), vars(module))
        sys.modules[name] = module
    found: type[nn.Module] = getattr(sys.modules[name], CLASS)
    return found


def _commented(body: str, graph: fx.Graph) -> Iterator[str]:
    """Its lines, with the user's own above those that were made of each."""
    origins, last = {node.name: origin_of(node) for node in graph.nodes}, None
    for line in body.split("\n"):
        made = _ASSIGNED.match(line)
        origin = origins.get(made[2]) if made else None
        if made and origin and origin != last:
            yield f"{made[1]}# {origin[0]} {origin[1]}".rstrip()
            last = origin
        yield line
