"""Sources -> str: one self-contained file with ModelNew, which needs torch and a compiler only."""

from __future__ import annotations

from dataclasses import dataclass

from .device import CPP_FLAGS
from .emission import piece
from .emission.body import apart, forward, parameters, reference, size_reads
from .emission.guards import (
    AUTOCAST_DTYPES,
    autocast_test,
    guard,
    named_objects,
    object_expression,
    size_lines,
)
from .emission.signature import bare, handed_on, parameter_names
from .emission.spelling import dtype, number
from .ir.contract import Contract
from .ir.graph import Graph
from .ir.kernel import RowBlocks, Source
from .ir.operator import Operator, Result, operator_of, operators_of
from .ir.original import Original, Part
from .ir.plan import ContractionSchedule, Group
from .ir.product import Mode
from .ir.reduction import Lowered
from .ir.types import TensorType

# The oldest stable ABI that has all that the host code calls: PyTorch 2.10.
ABI_FLAG = "-DTORCH_TARGET_VERSION=0x020a000000000000"


def emit(
    original: Original,
    parts: tuple[Part, ...],
    same_under_autocast: tuple[str, ...],
    source: Source,
    host: str,
    head: str,
) -> str:
    """The text of the emitted file.

    `head` is what its docstring says, without the quotes. `source` and `host` hold the kernels of
    all parts; a file without kernels is the original under the name ModelNew.
    """
    welds = [weld for part in parts for weld in _welds(part)]
    sections = [f"{_docstring(head)}\n\nimport torch", _original_text(original)]
    if welds:
        sections += [_sources_text(source, host), piece("library").strip()]
        sections += [piece("weld").strip(), *([piece("tf32").strip()] if _any_tf32(parts) else [])]
        if any(weld.group.tail is not None for weld in welds):
            sections.append(piece("row_blocks").strip())
        sections += [_load_text(original, source, welds[0].operator.name)]
        sections += [text for weld in welds for text in _reference_and_fake(weld)]
        sections.append(_holder_text(original, parts, source, welds))
    sections.append(_class_text(parts, same_under_autocast, bool(welds)))
    sections.append(_exports_text(original))
    return "\n\n\n".join(sections) + "\n"


@dataclass(frozen=True, slots=True)
class _Welded:
    """A welded group; of row blocks `tail` is the operator of their tail."""

    graph: Graph
    group: Group
    operator: Operator
    tail: Operator | None


def _welds(part: Part) -> list[_Welded]:
    return [
        _Welded(part.plan.graph, group, operator, _tail(group, lowered))
        for group, lowered, operator in operators_of(part.plan.groups, part.kernels)
    ]


def _tail(group: Group, lowered: Lowered) -> Operator | None:
    if group.tail is None or not isinstance(lowered, RowBlocks):
        return None
    return operator_of(group.tail, lowered.tail)


def _docstring(head: str) -> str:
    safe = head.replace("\\", "/").replace('"""', "'''").strip('"')
    return f'"""{safe}\n"""' if "\n" in safe else f'"""{safe}"""'


def raw_string(text: str) -> str:
    """A string literal that shows `text` line by line, whatever quotes are in it."""
    for quotes in ('"""', "'''"):
        if quotes not in text and not text.endswith((quotes[0], "\\")):
            return f"r{quotes}{text}{quotes}"
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


def _original_text(original: Original) -> str:
    if original.source is None:
        names = f'"{original.module}", "{original.class_name}"'
        return f"{piece('imported').strip()}\n\n\n_original, _Original = _imported({names})"
    text = raw_string(original.source if original.source.endswith("\n") else original.source + "\n")
    return "\n".join(
        [
            f"# {original.file} as it was.",
            f"_ORIGINAL = {text}",
            "",
            "",
            piece("original").strip(),
            "",
            "",
            f"_original = _apart(_ORIGINAL, {original.file!r})",
            f"_Original = _original.{original.class_name}",
        ]
    )


def _sources_text(source: Source, host: str) -> str:
    name = "_CUDA" if source.language == "cuda" else "_CPU"
    return "\n".join(
        [
            "# The kernels.",
            f"{name} = {raw_string(source.text)}",
            "",
            "# What PyTorch calls: checks operands, makes results, chooses and runs a kernel.",
            f"_MAIN = {raw_string(host)}",
        ]
    )


def _load_text(original: Original, source: Source, first: str) -> str:
    """Builds and loads the kernels; afterwards `_ops` and `_devices` are there."""
    stem = original.file.rpartition(".")[0] or original.file
    slug = "".join(c if c.isalnum() and c.isascii() else "_" for c in stem.lower())
    cuda = source.language == "cuda"
    lines = [
        *(["_devices = _cuda_devices()"] if cuda else []),
        "_ops, _devices = _load(",
        f'    "{slug}",',
        f'    "{first}",',
        *(_CUDA_INPUTS if cuda else _CPU_INPUTS),
        ")",
    ]
    return "\n".join([piece("cuda" if cuda else "cpu").strip(), "", "", *lines])


_CUDA_INPUTS = (
    "    _devices,",
    "    cpp_sources=[_MAIN],",
    "    cuda_sources=[_CUDA],",
    f'    extra_cflags=["-O2", "-DUSE_CUDA", "{ABI_FLAG}"],',
    '    extra_cuda_cflags=["-O3", *_architectures(_devices)],',
    '    extra_ldflags=["-Wl,-Bsymbolic"],',
)

_CPU_INPUTS = (
    '    (torch.device("cpu"),),',
    "    cpp_sources=[_CPU, _MAIN],",
    "    extra_cflags=[",
    *(f'        "{flag}",' for flag in (*CPP_FLAGS, ABI_FLAG)),
    "    ],",
    '    extra_ldflags=["-Wl,-Bsymbolic", *_vector_library()],',
)


def _reference_and_fake(weld: _Welded) -> list[str]:
    if weld.tail is not None:
        return [apart(weld.graph, weld.group, weld.operator, weld.tail), _fake(weld.operator)]
    return [reference(weld.graph, weld.group, weld.operator), _fake(weld.operator)]


def _fake(operator: Operator) -> str:
    """What the operator returns, for torch.compile: the layouts of the host code."""
    results = [_fake_result(operator, result) for result in operator.results]
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    reads = [line for line in size_reads(operator) if line.split(" ", 1)[0] in returned]
    head = f"def _{operator.name}_fake({', '.join(parameters(operator))}):"
    return "\n".join([head, *(f"    {line}" for line in reads), f"    return {returned}"])


def _fake_result(operator: Operator, result: Result) -> str:
    names = parameters(operator)
    if result.like is not None:
        kind = _dtype_argument(operator.arguments[result.like].type, result.type)
        return f"torch.empty_like({names[result.like]}{kind})"
    sizes = ", ".join(number(size) for size in result.type.shape)
    shape = f"({sizes},)" if result.type.rank == 1 else f"({sizes})"
    return (
        f"{names[0]}.new_empty({shape}{_dtype_argument(operator.arguments[0].type, result.type)})"
    )


def _dtype_argument(given: TensorType, wanted: TensorType) -> str:
    return "" if given.dtype is wanted.dtype else f", dtype={dtype(wanted.dtype)}"


def _holder_text(
    original: Original, parts: tuple[Part, ...], source: Source, welds: list[_Welded]
) -> str:
    objects = named_objects(tuple(part.variant.contract for part in parts))
    texts = ", ".join(object_expression(name, original.module) for name in objects)
    device_type = "cuda" if source.language == "cuda" else "cpu"
    lines = [
        "class _Weld:",
        '    """What ModelNew uses, held by its class: names in a namespace can be rebound."""',
        "",
        "    devices = _devices",
        f'    autocast = staticmethod(_autocast_of("{device_type}"))',
        f"    objects = ({texts}{',' if len(objects) == 1 else ''})",
        "    plain = staticmethod(_plain)",
        "    unchanged = staticmethod(_unchanged)",
        *(["    allows_tf32 = staticmethod(_allows_tf32)"] if _any_tf32(parts) else []),
        *(f"    {weld.operator.name} = {_holder_call(weld)}" for weld in welds),
    ]
    return "\n".join(lines)


def _holder_call(weld: _Welded) -> str:
    if weld.tail is None:
        return _welded_call(weld.operator)
    name = weld.operator.name
    arguments = [f'_ops, "{name}"', f"_{name}_apart", f"_{name}_fake", f"{weld.tail.name}.__func__"]
    return _static("_in_row_blocks", arguments)


def _welded_call(operator: Operator) -> str:
    reuse = f", reuse={operator.reuse}" if operator.reuse is not None else ""
    sizes = f", num_sizes={len(operator.sizes)}" if operator.sizes else ""
    name = operator.name
    reached = f", reached={operator.reached!r}" if _reaches_less(operator) else ""
    arguments = [f'_ops, "{name}"', f"_{name}_reference", f"_{name}_fake{reuse}{sizes}{reached}"]
    return _static("_welded", arguments)


def _static(function: str, arguments: list[str]) -> str:
    listed = ",\n            ".join(arguments)
    return f"staticmethod(\n        {function}(\n            {listed}\n        )\n    )"


def _reaches_less(operator: Operator) -> bool:
    """Whether some gradient stops before an argument that could have one."""
    floats = [i for i, a in enumerate(operator.arguments) if a.type.dtype.is_float]
    return any(list(places) != floats for places in operator.reached)


def _class_text(parts: tuple[Part, ...], same: tuple[str, ...], welded: bool) -> str:
    lines = [
        "class ModelNew(_Original):",
        '    """The original, with its operators welded where they can be."""',
        "",
        *(["    _opweld = _Weld", ""] if welded else []),
        *_indented(piece("adopt").strip().split("\n"), 4),
    ]
    if welded:
        objects = named_objects(tuple(part.variant.contract for part in parts))
        lines += ["", *_indented(_forward_lines(parts, same), 4)]
        for contract in _contracts(parts):
            lines += ["", *_indented(_guard_lines(contract, parts, objects), 4)]
        lines += ["", "", "_Weld.model = ModelNew"]
    return "\n".join(lines)


def _contracts(parts: tuple[Part, ...]) -> tuple[Contract, ...]:
    """The different contracts of all variants; mostly there is one."""
    found: list[Contract] = []
    for part in parts:
        if part.variant.contract not in found:
            found.append(part.variant.contract)
    return tuple(found)


def _forward_lines(parts: tuple[Part, ...], same: tuple[str, ...]) -> list[str]:
    """The forward: what the guard refuses goes to the original, the rest to its variant."""
    contract = parts[0].variant.contract
    names = bare(contract.signature)
    fallback = f"return super().forward({handed_on(contract.signature)})"
    lines = [f"def forward({contract.signature}):", "    _weld = self._opweld"]
    shared = len(_contracts(parts)) == 1
    if shared:
        lines += [f"    if not self._opweld_fits({names}):", f"        {fallback}"]
    if len(parts) == 1 and set(same) >= set(AUTOCAST_DTYPES):
        return lines + _indented(_forward_body(parts[0]), 4)
    lines.append("    _autocast = _weld.autocast()")
    for part in parts:
        test = autocast_test("_autocast", part.variant.autocast, same)
        if not shared:
            guard_name = _guard_name(part.variant.contract, parts)
            test = f"({test}) and self.{guard_name}({names})"
        lines += [f"    if {test}:", *_indented(_forward_body(part), 8)]
    return [*lines, f"    {fallback}"]


def _forward_body(part: Part) -> list[str]:
    contract = part.variant.contract
    operators = {weld.operator.name: weld.operator for weld in _welds(part)}
    tensors = [fact.access for fact in contract.inputs if fact.type is not None]
    device = f"{tensors[0]}.device"
    names = parameter_names(contract.signature)
    lines = forward(part.plan, operators, device, size_lines(contract), names)
    if any("device=_device" in line for line in lines):
        lines.insert(0, f"_device = {device}")
    return lines


def _guard_name(contract: Contract, parts: tuple[Part, ...]) -> str:
    index = _contracts(parts).index(contract)
    return f"_opweld_fits_{index + 1}" if index else "_opweld_fits"


def _guard_lines(
    contract: Contract, parts: tuple[Part, ...], objects: tuple[str, ...]
) -> list[str]:
    return [
        f"def {_guard_name(contract, parts)}(self, {bare(contract.signature)}):",
        '    """Whether the kernels were made for this call."""',
        "    _weld = self._opweld",
        *_indented(guard(contract, objects, _has_tf32(contract, parts)), 4),
    ]


def _any_tf32(parts: tuple[Part, ...]) -> bool:
    return any(_has_tf32(contract, parts) for contract in _contracts(parts))


def _has_tf32(contract: Contract, parts: tuple[Part, ...]) -> bool:
    groups = [g for part in parts if part.variant.contract == contract for g in part.plan.groups]
    schedules = [group.schedule for group in groups]
    return any(isinstance(s, ContractionSchedule) and s.mode is Mode.TF32 for s in schedules)


def _indented(lines: list[str], spaces: int) -> list[str]:
    return [" " * spaces + each if each else "" for line in lines for each in line.split("\n")]


def _exports_text(original: Original) -> str:
    """The original's own names, where nothing holds them yet."""
    if not original.exports:
        return "# The original class is _Original."
    return "\n".join(
        f'globals().setdefault("{name}", _original.{name})' for name in original.exports
    )
