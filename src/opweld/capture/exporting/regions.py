"""Parts of a forward under `torch.no_grad()`: their operations in the graph around them.

Export keeps such a part as one operator that runs a graph of its own. Nothing that it computes has
a gradient, which is what detaching its results says, too.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.export import ExportedProgram


def inline_regions(program: ExportedProgram) -> None:
    """Puts the operations of each part without gradients in its place, and detaches the results;
    also within parts under an autocast of their own.
    """
    for module in graphs_of(program):
        if any(map(_is_without_gradients, module.graph.nodes)):
            while region := next(filter(_is_without_gradients, module.graph.nodes), None):
                _inline(module, region)
            module.recompile()


def graphs_of(program: ExportedProgram) -> list[fx.GraphModule]:
    """The program's graph and those that its operators run."""
    return [each for each in program.graph_module.modules() if isinstance(each, fx.GraphModule)]


def _is_without_gradients(node: fx.Node) -> bool:
    switches = node.target is torch.ops.higher_order.wrap_with_set_grad_enabled
    return switches and node.args[0] is False


def _inline(module: fx.GraphModule, region: fx.Node) -> None:
    _, inside, *given = region.args
    assert isinstance(inside, fx.Node), "the operator's graph"
    results = _copied(module, region, str(inside.target), given)
    for taken in list(region.users):
        assert taken.target is operator.getitem, "a region returns a tuple"
        _detached(module.graph, taken, results[taken.args[1]])  # type: ignore[index]
    module.graph.erase_node(region)
    if not inside.users:
        module.graph.erase_node(inside)


def _copied(
    module: fx.GraphModule, region: fx.Node, path: str, given: list[fx.node.Argument]
) -> list[fx.node.Argument]:
    """The region's results, computed before it."""
    inner = module.get_submodule(path)
    assert isinstance(inner, fx.GraphModule), "the operator runs a graph"
    waiting, made = iter(given), dict[fx.Node, fx.node.Argument]()
    for node in inner.graph.nodes:
        with module.graph.inserting_before(region):
            if node.op == "placeholder":
                made[node] = next(waiting)
            elif node.op == "output":
                return list(fx.map_arg(node.args[0], made.__getitem__))  # type: ignore[call-overload]
            elif node.op == "get_attr":  # the graph of a region inside of this one, or a constant
                held = f"{path}_{node.target}".replace(".", "_")
                setattr(module, held, operator.attrgetter(node.target)(inner))
                made[node] = module.graph.get_attr(held)
            else:
                made[node] = module.graph.node_copy(node, made.__getitem__)  # type: ignore[arg-type]
    raise AssertionError("a graph ends with its results")


def _detached(graph: fx.Graph, taken: fx.Node, result: fx.node.Argument) -> None:
    """The result where `taken` was, under its name: outputs go by their names."""
    name, value = taken.name, result
    if isinstance(taken.meta.get("val"), torch.Tensor):
        with graph.inserting_before(taken):
            value = graph.call_function(torch.ops.aten.detach.default, (result,))
        value.meta.update(taken.meta)
    taken.replace_all_uses_with(value)  # type: ignore[arg-type]
    graph.erase_node(taken)
    if isinstance(value, fx.Node) and value is not result:
        value._rename(name)
