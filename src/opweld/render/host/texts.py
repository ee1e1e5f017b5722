"""The host code, main.cpp: registers the operators, checks their operands, launches the kernels.

Only this text sees torch, and of torch only the headers that are stable between versions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from importlib import resources

from ...device.used import used
from ...ir.expr import product, symbols_of
from ...ir.kernels.convolution import Convolving
from ...ir.kernels.kernel import Attending, Contraction, Kernel, Pointwise, RowBlocks
from ...ir.kernels.reduction import Lowered, Reduction, Scan
from ...ir.kernels.shared import fused_groups_of, sites_of
from ...ir.kernels.source import TRACK
from ...ir.operator import Operator, Result, operator_of
from ...ir.original import Part
from ...ir.plan import Group
from ..c import index_text
from ..cpp.statements import picks
from ..cuda.cooperative_rows import has_partials
from ..cuda.entry import Tabled, given_sizes, takes_scratch
from ..cuda.reduce_rows import keeps_results
from ..cuda.texts import runs_by_skeleton
from ..running_statistics import DECLARATION, OPERATOR, SCHEMA
from .attention import attention_declarations, attention_run
from .contraction import contraction_run, entry_declarations
from .parts import (
    before_gathers,
    behind_gathers,
    contiguous_test,
    range_call,
    reads,
    references,
    scalar_type,
    shape,
    sizes,
    sizes_of_run,
    wrapped,
)
from .reduction import reduction_run
from .row_blocks import row_blocks_run
from .table import kept_declarations, kept_operator, table_declarations, table_operator

_OPERATOR = """
// Makes f the operator of a schema.
#define OPWELD_OPERATOR(f, schema)                                          \\
  STABLE_TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) { m.def(schema); } \\
  STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, @KEY@, m) { m.impl(#f, TORCH_BOX(&f)); }"""
# Where calls are replayed: the same, and what replays them.
_REPLAY = """
STABLE_TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) {
  m.def("opweld_address(str name) -> int");
  m.def("opweld_prepare(Tensor[] own, int[] code, str names, int calls, int returned) -> int");
  m.def("opweld_replay(Tensor[] values, int number) -> Tensor[]");
  m.def("opweld_forget(int number) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("opweld_address", TORCH_BOX(&host::address_of));
  m.impl("opweld_prepare", TORCH_BOX(&host::prepare));
  m.impl("opweld_replay", TORCH_BOX(&host::replay));
  m.impl("opweld_forget", TORCH_BOX(&host::forget));
}"""
# Where forwards and backwards are replayed as well.
_REPLAY_STEPS = """
STABLE_TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) {
  m.def("opweld_replay_forward(Tensor[] values, int number, int results) -> (Tensor[], int)");
  m.def("opweld_replay_backward(Tensor[] values, int number, int left, bool keep) -> Tensor[]");
  m.def("opweld_forget_left(int number) -> ()");
  m.def("opweld_add(Tensor left, Tensor right) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("opweld_replay_forward", TORCH_BOX(&host::replay_forward));
  m.impl("opweld_replay_backward", TORCH_BOX(&host::replay_backward));
  m.impl("opweld_forget_left", TORCH_BOX(&host::forget_left));
  m.impl("opweld_add", host::operators()["opweld_add"] = TORCH_BOX(&host::add));
}"""
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_NAMESPACE = re.compile(r"^(namespace (?:\w+ )?\{|\}  // namespace(?: \w+)?)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostOperator:
    """The text of one operator: what it calls, itself, and how PyTorch gets to know it."""

    name: str
    declarations: tuple[str, ...]
    text: str
    schemas: tuple[str, ...]
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """The host code of one emitted file: what all operators have in common, and each of them.

    The namespace of the operators is the macro TORCH_EXTENSION_NAME.
    """

    key: str
    shared: str
    operators: tuple[HostOperator, ...]

    @property
    def text(self) -> str:
        """One translation unit with all."""
        return "\n".join([self.shared, self.of(None)])

    def of(self, names: Collection[str] | None) -> str:
        """Some operators, or all."""
        chosen = [each for each in self.operators if names is None or each.name in names]
        declared = [line for each in chosen for line in each.declarations]
        pieces = declared if self.key == "CUDA" else []
        pieces += ["namespace {", *(each.text for each in chosen), "}  // namespace"]
        return "\n".join([*pieces, _registration(chosen)]) + "\n"


class Replays(Enum):
    """Which calls that were recorded the host code makes anew."""

    NONE = ""
    FORWARDS = _REPLAY
    STEPS = _REPLAY + _REPLAY_STEPS


_TRACKING = HostOperator(TRACK, (f"{DECLARATION};",), OPERATOR, (SCHEMA,), (TRACK,))


def host(
    parts: tuple[Part, ...],
    language: str,
    replays: Replays = Replays.NONE,
    tracks: bool = False,
) -> Host:
    """The host code for all kernels of one emitted file; `language` is "cuda" or "c++". On CUDA it
    may move running statistics, too.
    """
    fused_groups = fused_groups_of(parts)
    key, extra = ("CUDA", "host_cuda.h") if language == "cuda" else ("CPU", "host_cpu.h")
    lowereds = [lowered for _, _, lowered, _ in fused_groups]
    products = [w for w in lowereds if isinstance(w, Contraction)]
    tabled = [w for w in lowereds if language == "cuda" and isinstance(w, Tabled)]
    reductions = [w for w in lowereds if isinstance(w, Reduction | Scan) and language == "c++"]
    cut = any(map(has_partials, reductions))
    attends = any(isinstance(w, Attending) for w in lowereds)
    files = ["tensor_view.h"] if tabled or tracks else []
    files += ["scratch.h"] if any(map(takes_scratch, tabled)) else []
    files += ["sizes.h"] if any(map(_sizes_of, tabled)) else []
    listed = any(a.listed is not None for *_, operator in fused_groups for a in operator.arguments)
    files += ["tensor_list.h"] if listed else []
    files += ["running_statistics.h"] if tracks else []
    keeps = language == "cuda" and any(map(keeps_results, lowereds))
    files += ["host.h", extra] if keeps or len(tabled) < len(lowereds) else []
    files += ["memory.h"] if keeps or products or cut or attends else []
    files += ["product.h"] if keeps or products or attends else []
    held = keeps or any(product.held for product in products)
    files += ["packed_weights.h"] if held else []
    files += ["kept_results.h"] if keeps else []
    files += ["rows_cpu.h"] if reductions else []
    checked = any(picks(w.kernels) for w in lowereds)
    files += ["inside_cpu.h"] if checked and language == "c++" else []
    files += ["row_blocks.h"] if any(isinstance(w, RowBlocks) for w in lowereds) else []
    files += [] if replays is Replays.NONE else ["replay.h"]
    files += ["add.h", "replay_steps.h"] if replays is Replays.STEPS else []
    sites = sites_of(parts)
    operators = tuple(
        HostOperator(
            operator.name,
            tuple(_declarations(lowered)) if language == "cuda" else (),
            _table_text(operator, lowered, sites[operator.name])
            if language == "cuda" and isinstance(lowered, Tabled)
            else _operator_text(group, lowered, operator, sites[operator.name]),
            (_schema(operator), *([_into_schema(operator)] if _reuses(operator) else [])),
            (operator.name, *([f"{operator.name}_into"] if _reuses(operator) else [])),
        )
        for _, group, lowered, operator in fused_groups
    )
    operators += (_TRACKING,) if tracks else ()
    files += ["format.h"] if any("host::in_format(" in each.text for each in operators) else []
    shared = [_in_common(files, operators, replays.value).replace("OPWELD_KEY", key.lower())]
    shared.append(_registered(key, replays))
    return Host(key, "\n".join(shared), operators)


def _table_text(operator: Operator, lowered: Tabled, sites: int) -> str:
    if keeps_results(lowered):
        return kept_operator(operator, sites)
    return table_operator(operator, takes_scratch(lowered), _sizes_of(lowered))


def _sizes_of(lowered: Tabled) -> tuple[str, ...]:
    if isinstance(lowered, Convolving) or runs_by_skeleton(lowered):
        return ()
    return given_sizes(lowered)


def _reuses(operator: Operator) -> bool:
    return operator.reuse is not None


def _registered(key: str, replays: Replays) -> str:
    """What makes functions operators."""
    text = _OPERATOR.replace("@KEY@", key)
    if replays is not Replays.NONE:
        text = text.replace("TORCH_BOX(&f)", "host::operators()[#f] = TORCH_BOX(&f)")
    return text + replays.value


def _in_common(files: Iterable[str], operators: Iterable[HostOperator], more: str) -> str:
    """What the operators, and `more`, use of files of the device library, its includes first."""
    text = "\n".join(map(_device, files))
    includes = sorted(set(_INCLUDE.findall(text)), key=lambda line: ("torch" not in line, line))
    parts = _NAMESPACE.split(_INCLUDE.sub("", text))
    kept = [part.strip("\n") for part in used(parts, [*(each.text for each in operators), more])]
    return "".join(includes) + "\n" + "\n\n".join(_in_one_go(kept)).replace("{\n\nn", "{\nn")


def _in_one_go(parts: Iterable[str]) -> list[str]:
    """Without empty namespaces, and without the ends of those that begin again at once."""
    kept: list[str] = []
    for part in parts:
        if kept and {kept[-1][0], part[0]} == {"n", "}"} and _same_namespace(kept[-1], part):
            kept.pop()
        else:
            kept.append(part)
    return kept


def _same_namespace(*parts: str) -> bool:
    """Whether these are the first and the last line of a namespace, in any order."""
    names = {re.sub(r"\W|namespace", "", part) for part in parts}
    return len(names) == 1 and all(map(_NAMESPACE.fullmatch, parts))


def _device(file: str) -> str:
    host = resources.files("opweld.device") / "host"
    return (host / file).read_text(encoding="utf-8").rstrip("\n")


def _declarations(lowered: Lowered) -> list[str]:
    """The C functions that the CUDA text defines."""
    if isinstance(lowered, Attending):
        return attention_declarations(lowered)
    if isinstance(lowered, Contraction):
        return entry_declarations(lowered)
    assert isinstance(lowered, Tabled), "row blocks run on the CPU"
    kept = kept_declarations(lowered.group) if keeps_results(lowered) else []
    return [*table_declarations(lowered.group, takes_scratch(lowered)), *kept]


def _operator_text(group: Group, lowered: Lowered, operator: Operator, sites: int) -> str:
    parts = [_run(group, lowered, operator, sites), _fresh_text(operator)]
    if operator.reuse is not None:
        parts.append(_into_text(operator))
    return "\n\n".join(parts) + "\n"


def _run(group: Group, lowered: Lowered, operator: Operator, sites: int) -> str:
    if isinstance(lowered, Attending):
        return attention_run(operator, lowered)
    if isinstance(lowered, Contraction):
        return contraction_run(operator, lowered, sites)
    if isinstance(lowered, Reduction | Scan):
        return reduction_run(operator, lowered)
    if isinstance(lowered, RowBlocks):
        assert group.tail is not None, "row blocks have a tail"
        return row_blocks_run(operator, operator_of(group.tail, lowered.tail), lowered)
    assert isinstance(lowered, Pointwise), "others are tabled"
    return _run_text(operator, lowered)


def _parameters(operator: Operator) -> list[str]:
    tensors = [f"Tensor {argument.name}" for argument in operator.arguments]
    return tensors + [f"int64_t {name}" for name in operator.sizes]


def _run_text(operator: Operator, fused: Pointwise) -> str:
    """Chooses the kernel by the layouts at this call and runs it."""
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, sizes_of_run(fused)),
        f"  const int64_t num_elems = {index_text(product(fused.shape), str)};",
        "  if (num_elems == 0) return;",
        *before_gathers(fused.strided),
        f"  if ({contiguous_test(operator, fused)}) {{",
        *_side_by_side(fused.contiguous),
        "  } else {",
        *_side_by_side(fused.strided),
        "  }",
        *behind_gathers(fused.strided),
        "}",
    ]
    return "\n".join(lines)


def _side_by_side(kernel: Kernel) -> list[str]:
    loop = "torch::stable::parallel_for(0, num_elems, host::kGrain"
    return [
        f"    {loop}, [&](int64_t begin, int64_t end) {{",
        f"      {range_call(kernel)}",
        "    });",
    ]


def _fresh_text(operator: Operator) -> str:
    """The operator itself: its results are new tensors."""
    returned = ", ".join(result.name for result in operator.results)
    value = returned if len(operator.results) == 1 else f"std::make_tuple({returned})"
    lines = [
        wrapped(
            f"{_return_type(len(operator.results))} {operator.name}(", _parameters(operator), ") {"
        ),
        *_checks(operator),
        *(_allocation(operator, result) for result in operator.results),
        f"  {_run_call(operator)}",
        f"  return {value};",
        "}",
    ]
    return "\n".join(lines)


def _into_text(operator: Operator) -> str:
    """The same, with the first result in the memory of an argument that nobody reads any more."""
    assert operator.reuse is not None
    first, *others = operator.results
    returned = ", ".join(result.name for result in others)
    value = returned if len(others) == 1 else f"std::make_tuple({returned})"
    lines = [
        wrapped(f"{_return_type(len(others))} {operator.name}_into(", _parameters(operator), ") {"),
        *_checks(operator),
        f"  const Tensor& {first.name} = {operator.arguments[operator.reuse].name};",
        *(_allocation(operator, result) for result in others),
        f"  {_run_call(operator)}",
        *([f"  return {value};"] if others else []),
        "}",
    ]
    return "\n".join(lines)


def _return_type(count: int) -> str:
    if count == 0:
        return "void"
    return "Tensor" if count == 1 else f"std::tuple<{', '.join(['Tensor'] * count)}>"


def _run_call(operator: Operator) -> str:
    names = [a.name for a in operator.arguments] + [r.name for r in operator.results]
    return wrapped(f"{operator.name}_run(", [*names, *operator.sizes], ");")


def _checks(operator: Operator) -> list[str]:
    first = operator.arguments[0].name
    types = [a.type for a in operator.arguments] + [r.type for r in operator.results]
    needed = frozenset(name for t in types for size in t.shape for name in symbols_of(size))
    lines = reads(operator, needed)
    for argument in operator.arguments:
        label = f'"{operator.name}: {argument.name}"'
        items = [label, argument.name, first, scalar_type(argument.type), sizes(argument.type)]
        lines.append(f"  {wrapped('host::expect(', items, ');', 6)}")
    return lines


def _allocation(operator: Operator, result: Result) -> str:
    function = "row_major" if result.like is None else "laid_out_like"
    beside = operator.arguments[result.like or 0].name
    items = [beside, scalar_type(result.type), shape(result.type)]
    return f"  const Tensor {result.name} = {wrapped(f'host::{function}(', items, ');', 6)}"


def _registration(operators: list[HostOperator]) -> str:
    """The operators, then those of them that take the memory of an argument."""
    pairs = [[*zip(each.functions, each.schemas, strict=True)] for each in operators]
    places = [pair[place] for place in (0, 1) for pair in pairs if place < len(pair)]
    return "\n".join(f'OPWELD_OPERATOR({name}, "{schema}")' for name, schema in places)


def _schema(operator: Operator) -> str:
    tensors = [f"Tensor{'' if a.listed is None else '[]'} {a.name}" for a in operator.arguments]
    sizes = [f"SymInt {name}" for name in operator.sizes]
    return f"{operator.name}({', '.join([*tensors, *sizes])}) -> {_returned(len(operator.results))}"


def _into_schema(operator: Operator) -> str:
    tensors = [
        f"Tensor{'(a!)' if i == operator.reuse else ''} {a.name}"
        for i, a in enumerate(operator.arguments)
    ]
    sizes = [f"SymInt {name}" for name in operator.sizes]
    returned = _returned(len(operator.results) - 1)
    return f"{operator.name}_into({', '.join([*tensors, *sizes])}) -> {returned}"


def _returned(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
