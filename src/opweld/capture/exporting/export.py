"""torch.export in one state: sizes dynamic or fixed, training or not, autocast or not."""

from __future__ import annotations

import ast
import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.export._trace  # torch.export would import it, and much else, at its first call
from torch import fx, nn
from torch.export import Dim, ExportedProgram, exported_program
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from opweld.errors import OriginalKept
from opweld.ir.expr import Size, evaluate, symbols_of, terms_of
from opweld.ir.graph import Graph, Tracking, Update
from opweld.ir.ops import Op
from opweld.ir.types import TensorType

from ..aliases import refuse_hidden_aliases
from ..arguments import Arguments
from ..convert import Converter, Source
from ..library import Place
from ..loops.counting import LongLoop, Watch
from ..modules.access import weight_access, weight_name
from ..modules.calls import Calls
from ..modules.origins import where_in
from ..modules.renamed import unlike_modules
from ..ops.draws import refuse_unread_draws
from ..records import with_records
from ..running import Changes, changes_of, refuse_shared, written_with_gradients
from ..sizes import NotPolynomial, Symbols
from .dropouts import WholeDropouts
from .explained import explained, no_graph_holds
from .gradients import noting_gradients, refuse_results_with_gradients
from .losses import types_of_losses
from .recurrent import shapes_of_recurrent_layers
from .regions import graphs_of, inline_regions
from .seeding import refusing_seeds

Bounds = dict[str, tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class Exported:
    """A captured graph with the sizes that it holds for. `own_gradients` says why its gradients are
    not the forward's, where they are not. `differentiable` are the accesses of buffers that may be
    given a gradient, were they changed in place.
    """

    graph: Graph
    bounds: Bounds
    own_gradients: str
    differentiable: frozenset[str] = frozenset()


class NeedsFixedSizes(Exception):
    """With dynamic sizes the export holds under conditions that a range cannot express."""


def export_graph(
    module: nn.Module,
    arguments: Arguments,
    dynamic: frozenset[tuple[str, int]],
    name: str,
    autocast: torch.dtype | None = None,
    given_back: frozenset[str] = frozenset(),
) -> Exported:
    """The graph of one forward; the axes of inputs in `dynamic` are symbolic, and calls that
    condense stay PyTorch's on the lines `given_back`.

    Raises CaptureError with the reason and the user's line, and NeedsFixedSizes.
    """
    device = arguments.tensors[0].value.device
    with (
        _quiet(),
        _autocast(device, autocast),
        _no_level_stays(),
        shapes_of_recurrent_layers(),
        types_of_losses(),
    ):
        program, own_gradients = _exported(module, arguments, dynamic)
        recorded = written_with_gradients(program)
        inline_regions(program)
        _refuse_modes(program, autocast)
        refuse_unread_draws(program)
        refuse_hidden_aliases(program.graph.nodes)
        literals = _literals(program)
        program = _functional(program)
    changes = changes_of(program, recorded)
    refuse_shared(module, arguments, changes.values)
    symbols = Symbols()
    place = Place(device, f"{arguments.tensors[0].access}.device")
    converter = Converter(name, place, symbols, Calls(module), given_back)
    sources = _sources(program, module, arguments, literals)
    spec = program.call_spec.out_spec
    try:
        graph = converter.graph(program.graph, sources, _returned(program), spec)
        graph = _with_changes(converter, graph, module, changes)
    except NotPolynomial as error:
        raise NeedsFixedSizes(f"a size is {error}") from None
    bounds = _bounds(program, symbols)
    _require_ranges(program, graph, bounds)
    differentiable = frozenset(weight_access(module, name) for name in changes.differentiable)
    return Exported(graph, bounds, own_gradients, differentiable)


def _exported(
    module: nn.Module, arguments: Arguments, dynamic: frozenset[tuple[str, int]]
) -> tuple[ExportedProgram, str]:
    """The program, and why its gradients are not the forward's."""
    shapes = _dynamic_shapes(arguments, dynamic) if dynamic else None
    with (
        noting_gradients() as notes,
        refusing_seeds(),
        WholeDropouts(),
        Watch(),
        _no_hook_stays(),
    ):
        args, kwargs = arguments.args, arguments.kwargs
        export = partial(torch.export.export, module, args, kwargs, strict=False)
        try:
            program = with_records(partial(export, dynamic_shapes=shapes))
            if notes.switches_on:
                with torch.no_grad():
                    refuse_results_with_gradients(with_records(export))
        except Exception as error:  # the boundary to the user's code: anything may be raised there
            for leaf in arguments.tensors:
                _unmark(leaf.value)
            if isinstance(error, LongLoop):
                raise
            raise explained(error) from error
    return program, notes.said()


@contextlib.contextmanager
def _no_hook_stays() -> Iterator[None]:
    """An export that fails leaves a hook of its own on all buffers, which Dynamo does not know."""
    hooks = nn.modules.module._global_buffer_registration_hooks
    before = dict(hooks)
    try:
        yield
    finally:
        for key in [key for key in hooks if key not in before]:
            del hooks[key]


@contextlib.contextmanager
def _no_level_stays() -> Iterator[None]:
    """A graph of Dynamo that fails within torch.func leaves its levels: results would be zero."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _unmark(t: torch.Tensor) -> None:
    """An export that fails leaves its dynamic sizes marked on the tensor, for the next one too."""
    for name in [name for name in vars(t) if "_dynamo_" in name]:
        delattr(t, name)


def _functional(program: ExportedProgram) -> ExportedProgram:
    """Without writes in place; composite operators that torch can keep are kept."""
    try:
        with _composites_of(program), unlike_modules(program) as restored:
            return restored(program.run_decompositions({}))
    except Exception as error:  # torch runs the operators again, with anything they may raise
        raise explained(error) from error


@contextlib.contextmanager
def _composites_of(program: ExportedProgram) -> Iterator[None]:
    """Torch prepares each composite operator that it could keep, which takes longer than all else
    of an export: here it is asked for those of the program alone.
    """
    can_be_kept = getattr(exported_program, "_is_preservable_cia_op", None)
    asked = getattr(exported_program, "_collect_all_valid_cia_ops", None)
    if can_be_kept is None or asked is None:  # another torch: as slow as ever
        yield
        return
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    operators = (target for target in targets if isinstance(target, torch._ops.OpOverload))
    kept = set(filter(can_be_kept, operators))
    exported_program._collect_all_valid_cia_ops = lambda: kept
    try:
        yield
    finally:
        exported_program._collect_all_valid_cia_ops = asked


def _dynamic_shapes(arguments: Arguments, dynamic: frozenset[tuple[str, int]]) -> dict[str, Any]:
    wanted: dict[int, dict[int, Any]] = {}
    for leaf in arguments.tensors:
        axes = {axis: Dim.AUTO for access, axis in dynamic if access == leaf.access}
        wanted |= {id(leaf.value): axes} if axes else {}
    return {
        name: pytree.tree_map(lambda leaf: wanted.get(id(leaf)), value)
        for name, value in arguments.bound.items()
    }


def _refuse_modes(program: ExportedProgram, autocast: torch.dtype | None) -> None:
    """A region of another autocast state than the one around it would lose that."""
    switches = (str(n.target) for m in graphs_of(program) for n in m.graph.nodes)
    if autocast is not None and any("autocast" in target for target in switches):
        raise OriginalKept("the forward switches autocast itself")


def _literals(program: ExportedProgram) -> frozenset[str]:
    """Constants that the forward writes out as numbers; others come from outside of it."""
    return frozenset(
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder"
        and node.users
        and all(str(user.target).startswith("aten.lift_fresh") for user in node.users)
    )


def _returned(program: ExportedProgram) -> list[Any]:
    """What the forward returns, without the new values of buffers."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    specs = program.graph_signature.output_specs
    pairs = zip(specs, output.args[0], strict=True)
    return [value for spec, value in pairs if spec.kind is OutputKind.USER_OUTPUT]


def _with_changes(converter: Converter, graph: Graph, module: nn.Module, changes: Changes) -> Graph:
    """The graph that tells what a call leaves in the module's buffers."""
    outputs = list(graph.outputs)
    tracked = []
    for norm in changes.norms:
        towards = converter.towards.get(norm.call.name)
        if not towards:
            raise OriginalKept(
                "the forward changes running statistics", where=where_in([norm.call])
            )
        outputs += [value for value in towards if value not in outputs]
        buffers = (norm.mean, norm.variance, norm.count)
        mean, variance, count = (name and weight_access(module, name) for name in buffers)
        assert mean is not None and variance is not None, "a norm has both"
        places = outputs.index(towards[0]), outputs.index(towards[1])
        tracked.append(Tracking(mean, variance, count, norm.momentum, places))
    values = {name: converter.value_of(node) for name, node in changes.values.items()}
    outputs += [value for value in dict.fromkeys(values.values()) if value not in outputs]
    updates = tuple(
        Update(weight_access(module, name), outputs.index(value)) for name, value in values.items()
    )
    return replace(graph, outputs=tuple(outputs), tracked=tuple(tracked), updates=updates)


def _sources(
    program: ExportedProgram, module: nn.Module, arguments: Arguments, literals: frozenset[str]
) -> dict[str, Source]:
    leaves = iter(arguments.leaves)
    sources = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            leaf = next(leaves)
            value = None if isinstance(leaf.value, torch.Tensor) else leaf.value
            sources[spec.arg.name] = Source(spec.arg.name, leaf.access, Op.INPUT, value)
        elif spec.kind is InputKind.CONSTANT_TENSOR and spec.arg.name in literals:
            value = program.constants[spec.target]
            sources[spec.arg.name] = Source(spec.arg.name, spec.target, Op.CONST, value)
        elif spec.kind is InputKind.CONSTANT_TENSOR and not _is_attribute(module, spec.target):
            raise OriginalKept(
                "the forward uses a tensor that is no parameter, buffer or attribute of the module",
                where=where_in(_users(program, spec.arg.name)),
                next_step="register it as a buffer",
            )
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            access = weight_access(module, spec.target)
            sources[spec.arg.name] = Source(weight_name(spec.target), access, Op.WEIGHT)
        else:
            kind = type(program.constants.get(spec.target)).__name__
            raise no_graph_holds(kind, where_in(_users(program, spec.arg.name)))
    return sources


def _users(program: ExportedProgram, name: str) -> list[fx.Node]:
    return [user for node in program.graph.nodes if node.name == name for user in node.users]


def _is_attribute(module: nn.Module, path: str) -> bool:
    *parents, last = path.split(".")
    owner: Any = module
    for part in parents:
        owner = getattr(owner, part, None)
    return isinstance(getattr(owner, last, None), torch.Tensor)


def _bounds(program: ExportedProgram, symbols: Symbols) -> Bounds:
    bounds: Bounds = {}
    for theirs, limits in program.range_constraints.items():
        if str(theirs) not in symbols.names:
            continue
        upper = int(limits.upper) if limits.upper.is_Integer else None
        bounds[symbols.names[str(theirs)]] = (int(limits.lower), upper)
    return bounds


def _require_ranges(program: ExportedProgram, graph: Graph, bounds: Bounds) -> None:
    """Every condition that the export rests on must follow from the ranges of the sizes."""
    types = {node.attrs.access: node.type for node in graph.inputs}
    for guard in program._guards_code:
        if not _follows(ast.parse(guard, mode="eval").body, types, bounds):
            raise NeedsFixedSizes(guard)


def _follows(guard: ast.expr, types: dict[str, TensorType], bounds: Bounds) -> bool:
    if not isinstance(guard, ast.Compare) or len(guard.ops) != 1:
        return False
    left = _polynomial(guard.left, types)
    right = _polynomial(guard.comparators[0], types)
    if left is None or right is None:
        return False
    difference = left - right
    rising, falling = _least(difference, bounds), _least(difference * -1, bounds)
    return _HOLDS[type(guard.ops[0])](rising, falling)


# (least value of left - right, least value of right - left), None where it is not known.
_HOLDS: dict[type[ast.cmpop], Callable[[int | None, int | None], bool]] = {
    ast.GtE: lambda rising, falling: rising is not None and rising >= 0,
    ast.Gt: lambda rising, falling: rising is not None and rising > 0,
    ast.LtE: lambda rising, falling: falling is not None and falling >= 0,
    ast.Lt: lambda rising, falling: falling is not None and falling > 0,
    ast.Eq: lambda rising, falling: rising == 0 and falling == 0,
    ast.NotEq: lambda rising, falling: (rising or 0) > 0 or (falling or 0) > 0,
}


def _least(value: Size, bounds: Bounds) -> int | None:
    """The least value of a polynomial whose coefficients do not mix signs; None if unknown."""
    names = sorted(symbols_of(value))
    if any(name not in bounds for name in names):
        return None
    if all(factor >= 0 for monomial, factor in terms_of(value) if monomial):
        return evaluate(value, {name: bounds[name][0] for name in names})
    uppers = {name: bounds[name][1] for name in names}
    if any(factor > 0 for monomial, factor in terms_of(value) if monomial):
        return None
    known = {name: limit for name, limit in uppers.items() if limit is not None}
    return evaluate(value, known) if len(known) == len(names) else None


def _polynomial(tree: ast.expr, types: dict[str, TensorType]) -> Size | None:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _polynomial(tree.operand, types)
        return None if inner is None else inner * -1
    if isinstance(tree, ast.BinOp):
        return _arithmetic(tree, types)
    return _size_of(ast.unparse(tree), types)


def _arithmetic(tree: ast.BinOp, types: dict[str, TensorType]) -> Size | None:
    left, right = _polynomial(tree.left, types), _polynomial(tree.right, types)
    if left is None or right is None:
        return None
    if isinstance(tree.op, ast.Add):
        return left + right
    if isinstance(tree.op, ast.Sub):
        return left - right
    return left * right if isinstance(tree.op, ast.Mult) else None


def _size_of(text: str, types: dict[str, TensorType]) -> Size | None:
    """The size that `L['x'][0].size()[1]` names."""
    access, called, axis = text.partition(".size()[")
    if not called or not access.startswith("L['"):
        return None
    name, _, rest = access[3:].partition("']")
    type = types.get(name + rest)
    return None if type is None else type.shape[int(axis.rstrip("]"))]


_TALKING = ("torch.fx.experimental", "torch.export", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch prints the half-made graph when it gives up, or the traceback of an operator that takes
    no empty tensor; our error says it shorter.
    """
    loggers = [logging.getLogger(name) for name in _TALKING]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _autocast(device: torch.device, dtype: torch.dtype | None) -> Any:
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)
