"""Parts of a forward under `torch.no_grad()`: their operations in the graph around them.

Export keeps such a part as one operator that runs a graph of its own. Nothing that it computes has
a gradient, which is what detaching its results says, too.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.export import ExportedProgram

from opweld.errors import OriginalKept

from ..aliases import place_of, written_by
from ..modules.origins import where_in
from ..running import differentiates, without_gradients


def inline_regions(program: ExportedProgram) -> None:
    """Puts the operations of each part without gradients in its place, and detaches the results;
    also within parts under an autocast of their own.
    """
    constants = without_gradients(program)
    for module in graphs_of(program):
        if any(map(_is_without_gradients, module.graph.nodes)):
            while region := next(filter(_is_without_gradients, module.graph.nodes), None):
                _inline(module, region, constants)
            module.recompile()


def graphs_of(program: ExportedProgram) -> list[fx.GraphModule]:
    """The program's graph and those that its operators run."""
    return [each for each in program.graph_module.modules() if isinstance(each, fx.GraphModule)]


def _is_without_gradients(node: fx.Node) -> bool:
    switches = node.target is torch.ops.higher_order.wrap_with_set_grad_enabled
    return switches and node.args[0] is False


def _inline(module: fx.GraphModule, region: fx.Node, constants: frozenset[str]) -> None:
    _, inside, *given = region.args
    assert isinstance(inside, fx.Node), "the operator's graph"
    operands = [each for each in given if isinstance(each, fx.Node)]
    written = _written(module, str(inside.target), operands, constants)
    results = _copied(module, region, str(inside.target), given)
    records = any(differentiates(each, constants) for each in operands)
    for tensor in filter(_is_float, written if records else []):
        _stop_gradient(module.graph, region, tensor)
    places = {place_of(each) for each in written}
    for taken in list(region.users):
        assert taken.target is operator.getitem, "a region returns a tuple"
        stops = records and _is_float(taken) and place_of(taken) not in places
        _handed_on(module.graph, taken, results[taken.args[1]], stops)  # type: ignore[index]
    module.graph.erase_node(region)
    if not inside.users:
        module.graph.erase_node(inside)


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _written(
    module: fx.GraphModule, path: str, operands: list[fx.Node], constants: frozenset[str]
) -> list[fx.Node]:
    """The tensors from outside that the region writes to. Raises OriginalKept where one may have a
    gradient: eager's passes by what is written, and a graph's does not.
    """
    inner = module.get_submodule(path)
    assert isinstance(inner, fx.GraphModule), "the operator runs a graph"
    places = {place_of(each) for node in inner.graph.nodes for each in written_by(node)}
    written = [each for each in operands if place_of(each) in places - {None}]
    for tensor in written:
        if differentiates(tensor, constants):
            raise OriginalKept(
                "the forward writes to a tensor that has a gradient, without recording it",
                where=where_in([tensor]),
            )
    return written


def _stop_gradient(graph: fx.Graph, before: fx.Node, tensor: fx.Node) -> None:
    """What a region wrote to a tensor has no gradient."""
    with graph.inserting_before(before):
        stopped = graph.call_function(torch.ops.aten.detach.default, (tensor,))
        stopped.meta.update(tensor.meta)
        copied = graph.call_function(torch.ops.aten.copy_.default, (tensor, stopped))
        copied.meta.update(tensor.meta)


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
                constants = f"{path}_{node.target}".replace(".", "_")
                setattr(module, constants, operator.attrgetter(node.target)(inner))
                made[node] = module.graph.get_attr(constants)
            else:
                made[node] = module.graph.node_copy(node, made.__getitem__)  # type: ignore[arg-type]
    raise AssertionError("a graph ends with its results")


def _handed_on(graph: fx.Graph, taken: fx.Node, result: fx.node.Argument, stops: bool) -> None:
    """The result where `taken` was, under its name: outputs go by their names. It `stops` the
    gradient where it may have one.
    """
    name, value = taken.name, result
    if stops:
        with graph.inserting_before(taken):
            value = graph.call_function(torch.ops.aten.detach.default, (result,))
        value.meta.update(taken.meta)
    taken.replace_all_uses_with(value)  # type: ignore[arg-type]
    graph.erase_node(taken)
    if isinstance(value, fx.Node) and value is not result:
        value._rename(name)
