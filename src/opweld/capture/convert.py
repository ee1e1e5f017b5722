"""The exported graph in our operations."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from opweld.errors import OriginalKept
from opweld.ir.graph import Graph, Node, Origin, topological
from opweld.ir.infer import TypeRule
from opweld.ir.ops import Op
from opweld.ir.types import DType, ShapeMismatch, TensorType

from .build import Builder
from .call import Call, Lower, NotFused, ReadArguments
from .exporting.constants import constant
from .library import Place, library_call, operator_of, reason_for, refuse_effects
from .modules.calls import Calls
from .modules.origins import origin_of, where_of
from .ops.complexes import COMPLEX, Complex, ComplexLower, Wholes, is_complex
from .ops.creation import CREATION
from .ops.distances import DISTANCES
from .ops.draws import draws_by_memory, lies_alike
from .ops.gathers import GATHERS
from .ops.losses import LOSSES
from .ops.norms import NORMS
from .ops.pointwise import POINTWISE
from .ops.pools import POOLS
from .ops.reductions import REDUCTIONS
from .ops.scans import SCANS
from .ops.views import ALIASING, VIEWS
from .outputs import Outputs, structure_of
from .scalars import scalar_node
from .sizes import DataDependentSize, Symbols, size_of_elements

_CONDENSING: dict[str, Lower] = {
    **REDUCTIONS,
    **SCANS,
    **NORMS,
    **POOLS,
    **DISTANCES,
    **LOSSES,
}
_COMPUTED: dict[str, Lower] = {**POINTWISE, **_CONDENSING, **GATHERS}
ROWS: dict[str, Lower] = {**_COMPUTED, **VIEWS, **CREATION}
# Arguments that change the type, the place or the layout of a result, not its elements.
_IN_TYPE = ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "copy")
# Checks that export adds; the contract of the graph holds them.
_ASSERTIONS = ("aten._assert_tensor_metadata", "aten.sym_constrain_range", "aten._assert_scalar")


@dataclass(slots=True)
class Source:
    """What a placeholder stands for: a tensor by the expression that gives it, or a plain value."""

    name: str
    access: str
    op: Op = Op.INPUT
    value: Any = None


@dataclass(slots=True)
class Converter:
    """Walks an exported graph once, in order. Calls that condense stay PyTorch's on the user's
    lines `given_back`.
    """

    name: str
    place: Place
    symbols: Symbols
    calls: Calls
    given_back: frozenset[str] = frozenset()
    build: Builder = field(default_factory=Builder)
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[int, Origin] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    weights: list[Node] = field(default_factory=list)
    draws: set[int] = field(default_factory=set)
    towards: dict[str, list[Node]] = field(default_factory=dict)
    wholes: Wholes = field(init=False)

    def __post_init__(self) -> None:
        self.wholes = Wholes(self.build)

    def graph(
        self, exported: fx.Graph, sources: dict[str, Source], returned: list[Any], out_spec: Any
    ) -> Graph:
        """The graph that gives what is `returned`, in the structure of `out_spec`.

        Raises CaptureError, NotPolynomial or DataDependentSize.
        """
        for node in exported.nodes:
            if node.op == "placeholder":
                self.values[node.name] = self._source(node, sources[node.name])
            elif node.op == "call_function":
                self._convert(node)
            elif node.op != "output":
                raise OriginalKept(
                    f"the forward has a body that runs on a condition, {node.target}"
                )
        outputs = Outputs(self.build, self.values, self._as_call, self.wholes.whole)
        leaves = outputs.leaves(returned)
        structure = structure_of(leaves, out_spec, self.place.device)
        nodes = tuple(outputs.nodes)
        self._require_draws(nodes)
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(self.weights),
            nodes,
            structure,
            tuple(sorted(self.origins.items())),
        )

    def value_of(self, node: fx.Node) -> Node:
        """The tensor that a node of the exported graph has become."""
        value = self.values[node.name]
        made = self.wholes.whole(value) if isinstance(value, Complex) else value
        assert isinstance(made, Node), "a buffer takes a tensor"
        return made

    def _require_draws(self, outputs: tuple[Node, ...]) -> None:
        """Random numbers must be drawn all; the plan keeps them in the original's order."""
        if not self.draws <= {node.serial for node in topological(outputs)}:
            raise OriginalKept("the forward draws random numbers that its result does not need")

    def _source(self, node: fx.Node, source: Source) -> Any:
        fake = node.meta["val"]
        if not isinstance(fake, torch.Tensor):
            return source.value
        if source.value is not None:
            return self._seen(constant(self.build, source.value, self.place.text))
        type = self.symbols.type(fake)
        if type is None:
            raise OriginalKept(f"{source.access} has elements of type {fake.dtype}")
        made = self.build.arena.source(source.op, source.name, source.access, type)
        (self.inputs if source.op is Op.INPUT else self.weights).append(made)
        return self._seen(made)

    def _seen(self, node: Node) -> Node | Complex:
        """A tensor as rows take it: a complex one by its parts."""
        return self.wholes.parts(node) if node.type.dtype.is_complex else node

    def _convert(self, node: fx.Node) -> None:
        first_new = len(self.build.arena._nodes)
        try:
            self.values[node.name] = self._value(node)
        except DataDependentSize:
            raise size_of_elements(where_of(node)) from None
        origin = origin_of(node)
        if origin is not None:
            made_at = Origin(*origin, self.calls.of(node))
            for serial in range(first_new, len(self.build.arena._nodes)):
                self.origins.setdefault(serial, made_at)

    def _value(self, node: fx.Node) -> Any:
        target = node.target
        if target is operator.getitem:
            return self._get(node)
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return self._scalar(node)
        refuse_effects(node, where_of(node))
        rows = COMPLEX if _any_complex(node) else ROWS
        row = rows.get(target._opname) if target.namespace == "aten" else None
        reason = reason_for(operator_of(node))
        if row is not None:
            try:
                self._refuse_given_back(node)
                return self._fused(node, row)
            except NotFused as refusal:
                reason = str(refusal)
        call = library_call(
            node, self._arguments(node), self.build, self.symbols, self.place, reason
        )
        if call.attrs.draws:
            self.draws.add(call.serial)
            self._require_order(node)
        return self._seen(call) if isinstance(node.meta["val"], torch.Tensor) else call

    def _require_order(self, node: fx.Node) -> None:
        """Elements that numbers are drawn for must lie in memory as eager's do."""
        if not draws_by_memory(str(node.target)):
            return
        for given in node.all_input_nodes:
            ours, fake = self.values[given.name], given.meta.get("val")
            strided = isinstance(fake, torch.Tensor) and fake.layout is torch.strided
            if strided and not self._lies_alike(ours, fake):
                raise OriginalKept(
                    "random numbers go to a tensor that would lie otherwise in memory",
                    where=where_of(node),
                )

    def _lies_alike(self, ours: Any, fake: torch.Tensor) -> bool:
        if isinstance(ours, Complex):  # what is packed is row-major
            return fake.is_contiguous() or self.wholes.exists(ours)
        return not isinstance(ours, Node) or lies_alike(ours, fake)

    def _refuse_given_back(self, node: fx.Node) -> None:
        place, _ = origin_of(node) or ("", "")
        if node.target._opname in _CONDENSING and place in self.given_back:
            raise NotFused("measured slower than the PyTorch call it replaces")

    def _as_call(self, node: fx.Node) -> Node:
        """The call that makes a fresh tensor in eager, where a row made a view of a source."""
        reason = "the result is a copy of its own"
        made, *index = node.args if node.target is operator.getitem else (node,)
        call = library_call(
            made, self._arguments(made), self.build, self.symbols, self.place, reason
        )
        return self._item(call, *index) if index else call

    def _get(self, node: fx.Node) -> Any:
        parent, index = node.args
        value = self.values[parent.name]
        if isinstance(value, tuple):
            return value[index]
        return self._seen(self._item(value, index))

    def _item(self, call: Node, index: int) -> Node:
        type = call.attrs.results[index]
        return self.build.arena.item(call, index, type or TensorType(DType.F64, ()))

    def _scalar(self, node: fx.Node) -> Any:
        """A number or nothing: sizes, numbers read from tensors, assertions."""
        if str(node.target).startswith(_ASSERTIONS):
            return None
        return scalar_node(node, self.values, self.build, self.symbols)

    def _fused(self, node: fx.Node, row: Lower | ComplexLower) -> Any:
        self._check_devices(node)
        self._check_elements(node)
        values, fakes = self._bound(node)
        read = ReadArguments(values)
        call = Call(
            node.target._opname,
            node.target._overloadname,
            self.build,
            self.symbols,
            read,
            fakes,
            node.meta["val"],
        )
        try:
            result = row(call)
        except (TypeRule, ShapeMismatch) as error:
            raise NotFused(f"{node.target} on these operands is not fused: {error}") from None
        _require_read(node, read)
        self.towards[node.name] = call.towards
        checked = self._checked(node, call, result)
        self._remember_views(node, checked)
        return checked

    def _remember_views(self, node: fx.Node, result: Any) -> None:
        """Views of a complex tensor that is there as a whole are so too."""
        if node.target._opname not in ALIASING:
            return
        given = [self.values[each.name] for each in node.all_input_nodes]
        if all(self.wholes.exists(each) for each in given if isinstance(each, Complex)):
            for index, one in enumerate(result if isinstance(result, tuple) else (result,)):
                if isinstance(one, Complex):
                    self.wholes.is_view(one, partial(self._viewed, node, result, index))

    def _viewed(self, node: fx.Node, result: Any, index: int) -> Node:
        reason = "a view of complex elements"
        args = self._arguments(node)
        call = library_call(node, args, self.build, self.symbols, self.place, reason)
        return self._item(call, index) if isinstance(result, tuple) else call

    def _checked(self, node: fx.Node, call: Call, result: Any) -> Any:
        """What a row made must have torch's own type; anything else would be our mistake."""
        made = result if isinstance(result, tuple) else (result,)
        fakes = call.fake if isinstance(result, tuple) else (call.fake,)
        for one, fake in zip(made, fakes, strict=True):
            if one.type != self.symbols.type(fake):
                raise NotFused(f"{node.target} on these operands is not fused")
        return result

    def _check_devices(self, node: fx.Node) -> None:
        """Numbers written into the forward may be anywhere, and so may what is made of them alone:
        `y[:, 0] = 5` is `fill` with a tensor on the CPU to torch 2.11.
        """
        given = [n for n in node.all_input_nodes if not self._is_number(n)]
        fakes = [n.meta.get("val") for n in given]
        if given or not node.all_input_nodes:
            results = node.meta["val"]
            fakes += results if isinstance(results, tuple | list) else [results]
        for fake in fakes:
            if isinstance(fake, torch.Tensor) and fake.device.type != self.place.device.type:
                raise NotFused(f"a tensor on {fake.device.type} is left to the library")

    def _check_elements(self, node: fx.Node) -> None:
        for given in node.all_input_nodes:
            fake = given.meta.get("val")
            if isinstance(fake, torch.Tensor) and self.symbols.type(fake) is None:
                raise NotFused(f"elements of type {fake.dtype} are not fused")
            if isinstance(fake, torch.Tensor) and fake.layout is not torch.strided:
                raise NotFused(f"a tensor of layout {fake.layout} is left to the library")

    def _is_number(self, node: fx.Node) -> bool:
        ours = self.values.get(node.name)
        return isinstance(ours, Node) and ours.op is Op.CONST

    def _bound(self, node: fx.Node) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by their names in the schema, defaults filled in: ours, and torch's."""
        raw: dict[str, Any] = {}
        for position, argument in enumerate(node.target._schema.arguments):
            if position < len(node.args):
                raw[argument.name] = node.args[position]
            else:
                raw[argument.name] = node.kwargs.get(argument.name, argument.default_value)
        values = {name: self._ours(value) for name, value in raw.items()}
        return values, {name: _fake(value) for name, value in raw.items()}

    def _arguments(self, node: fx.Node) -> tuple[Any, Any]:
        """What a library call is given: ours, complex tensors as wholes."""
        args = [self._whole(self._ours(a)) for a in node.args]
        return args, {k: self._whole(self._ours(v)) for k, v in node.kwargs.items()}

    def _whole(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._whole(v) for v in value]
        return self.wholes.whole(value) if isinstance(value, Complex) else value

    def _ours(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.values[value.name]
        if isinstance(value, tuple | list):
            return [self._ours(v) for v in value]
        return value


def _require_read(node: fx.Node, read: ReadArguments) -> None:
    """An argument that a row did not look at must have its default, or be seen in the type."""
    if node.target._opname not in _COMPUTED:
        return
    for argument in node.target._schema.arguments:
        unread = argument.name not in read.names
        given = dict.get(read, argument.name)
        default = argument.has_default_value() and given == argument.default_value
        if unread and argument.name not in _IN_TYPE and not default:
            raise NotFused(f"{node.target} with {argument.name}={given} is left to the library")


def _any_complex(node: fx.Node) -> bool:
    """Whether an argument or a result is complex."""
    written: list[Any] = [node.args, tuple(node.kwargs.values())]
    fakes = [given.meta.get("val") for given in node.all_input_nodes]
    return is_complex([node.meta["val"], fakes, written])


def _fake(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, fx.Node) else value
