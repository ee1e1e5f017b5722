"""The classes of the emitted file: ModelNew, and those of submodules fused by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..ir.contract import Submodule
from ..ir.kernels.shared import fused_groups_of
from ..ir.original import Original, Part, bodies_of, forwards_of
from . import piece
from .facts import NOT_IN_TORCH_NN, paths_text
from .forward import forward
from .guards import AUTOCAST_DTYPES, autocast_test, flags_of, guard, size_lines
from .host_bound import asking_behind_guards, asking_test, host_bound_test, is_early
from .loops.turns import Turn
from .methods import Methods
from .replay import replay
from .signature import bare, handed_on, parameter_names
from .spans import Span

Spans = Mapping[str, Sequence[Span]]
"""What has one gradient over several kernels, by the suffix of a variant."""


def classes_text(
    original: Original,
    parts: tuple[Part, ...],
    fused: bool,
    spans: Spans,
    bound: Iterable[str],
    steps: bool = False,
) -> str:
    """The classes; `bound` are the labels of those that leave some calls to the original, ModelNew
    "" among them: with `steps`, whose gradients can be replayed, those that are not.
    """
    bound = frozenset(bound)
    submodules = submodules_of(parts)
    if not submodules:
        return _class("ModelNew", "_Original", _WHOLE, parts if fused else (), spans, bound, steps)
    classes = [
        _class(kind.name, base_of(kind, original), _docstring(kind), own, spans, bound, steps)
        for kind, own in submodules.items()
    ]
    lines = ["class ModelNew(_Original):", f'    """{_ASSEMBLED}"""', ""]
    lines += _indented(piece("submodules/assembled").strip().split("\n"), 4)
    return "\n\n\n".join([*classes, "\n".join(lines)])


_WHOLE = "The original, with its operators fused where they can be."
_ASSEMBLED = "The original, with submodules whose operators are fused."


def submodules_of(parts: Iterable[Part]) -> dict[Submodule, tuple[Part, ...]]:
    """The classes of submodules that are fused by themselves, with their variants."""
    found: dict[Submodule, tuple[Part, ...]] = {}
    for part in parts:
        if (kind := part.variant.submodule) is not None:
            found[kind] = (*found.get(kind, ()), part)
    return found


def base_of(kind: Submodule, original: Original) -> str:
    """Text of the class that it is derived from."""
    module, qualname = kind.type_name.split(":")
    if module == original.module:
        return f"_original.{qualname}"
    if module.startswith("torch.nn.modules.") and qualname not in NOT_IN_TORCH_NN:
        return f"torch.nn.{qualname}"
    return f"{module}.{qualname}"


def imports_of(parts: Iterable[Part], original: Original) -> list[str]:
    """The modules that hold these classes, beside torch and the original's own."""
    bases = (base_of(kind, original).rpartition(".")[0] for kind in submodules_of(parts))
    texts = {f"import {each}" for each in bases if each.split(".")[0] not in ("_original", "torch")}
    return sorted(texts)


def refit_text(parts: Iterable[Part]) -> str:
    """The statement that gives these classes the kernels, and ModelNew what puts them in place."""
    lines = ["ModelNew._opweld.refit = _refitting(", "    ModelNew,"]
    for kind in submodules_of(parts):
        first, *others = paths_text(kind.paths)
        *before, last = [f"    ({kind.name}, {first}", *(f"        {each}" for each in others)]
        lines += [*before, f"{last}),"]
    return "\n".join([*lines, ")"])


def _docstring(kind: Submodule) -> str:
    return f"{kind.type_name.rpartition(':')[2]}, with its operators fused where they can be."


def _class(
    name: str,
    base: str,
    told: str,
    parts: tuple[Part, ...],
    spans: Spans,
    bound: frozenset[str],
    steps: bool,
) -> str:
    """A class with a forward of kernels, where there are `parts`."""
    methods = Methods()
    lines = [f"class {name}({base}):", f'    """{told}"""']
    if name == "ModelNew":
        lines += ["", *_indented(piece("adopt").strip().split("\n"), 4)]
    if parts:
        asking = _as_it_was(parts, asking_test([mode[0].variant for mode in modes_of(parts)]))
        small = host_bound_test(parts[0].variant.contract, label_of(parts))
        original = _as_it_was(parts, small) if label_of(parts) in bound else []
        lines += ["", *_indented(_forward_lines(parts, spans, methods, asking, original, steps), 4)]
        for mode in modes_of(parts):
            lines += ["", *_indented(_guard_lines(mode), 4)]
    return "\n\n\n".join([*methods.text(), "\n".join(lines)])


def label_of(parts: Sequence[Part]) -> str:
    """What ends the names of a submodule's own things."""
    kind = parts[0].variant.submodule
    return f"_{kind.label}" if kind else ""


def modes_of(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], ...]:
    """The variants of each mode and dtype, which have one contract."""
    found: dict[str, tuple[Part, ...]] = {}
    for part in parts:
        name = part.variant.guard_suffix
        found[name] = (*found.get(name, ()), part)
    return tuple(found.values())


def _forward_lines(
    parts: tuple[Part, ...],
    spans: Spans,
    methods: Methods,
    asking: list[str],
    bound: list[str],
    steps: bool,
) -> list[str]:
    """The forward: what is `asking` for gradients that have no kernels, what is host-bound, by the
    statement `bound`, and what the guard refuses goes to the original, the rest to its variant.
    With `steps` replayed calls come before these.
    """
    contract = parts[0].variant.contract
    names = bare(contract.signature)
    modes, given = modes_of(parts), ["self", *parameter_names(contract.signature)]
    fallback = [
        *asking_behind_guards([mode[0].variant for mode in modes]),
        f"_kernels.tell({', '.join(given)})",
        f"return super().forward({handed_on(contract.signature)})",
    ]
    lines = [f"def forward({contract.signature}):", "    _kernels = self._opweld"]
    behind = steps and any(replay(part, steps) for part in forwards_of(parts))
    early, late = (bound, []) if is_early(contract) and not behind else ([], bound)
    lines += _indented([*asking, *early], 4)
    if len(modes) == 1 and _always(parts):
        lines += [f"    if not self.{_guard_name(parts)}({names}):", *_indented(fallback, 8)]
        return [*lines, *_indented(_mode_body(parts, spans, methods, late, steps), 4)]
    for mode in modes:
        body = _indented(_mode_body(mode, spans, methods, late, steps), 8)
        lines += [f"    if self.{_guard_name(mode)}({names}):", *body]
    return [*lines, *_indented(fallback, 4)]


def _as_it_was(parts: tuple[Part, ...], test: str) -> list[str]:
    """What runs the original where a test holds, if there is one."""
    call = f"    return super().forward({handed_on(parts[0].variant.contract.signature)})"
    return [f"if {test}:", call] if test else []


def _always(mode: tuple[Part, ...]) -> bool:
    """Whether the only variant of a mode is right under any autocast."""
    return len(forwards_of(mode)) == 1 and set(mode[0].variant.also) >= set(AUTOCAST_DTYPES)


def _mode_body(
    mode: tuple[Part, ...], spans: Spans, methods: Methods, bound: list[str], steps: bool
) -> list[str]:
    """The statements of one mode, whose guard holds; they return but for an unknown autocast."""
    if _always(mode):
        return _forward_body(mode[0], mode, spans, methods, bound, steps)
    lines = ["_autocast = _kernels.autocast()"]
    for part in forwards_of(mode):
        test = autocast_test("_autocast", part.variant)
        body = _forward_body(part, mode, spans, methods, bound, steps)
        lines += [f"if {test}:", *_indented(body, 4)]
    return lines


def _forward_body(
    part: Part,
    parts: tuple[Part, ...],
    spans: Spans,
    methods: Methods,
    bound: list[str],
    steps: bool,
) -> list[str]:
    contract = part.variant.contract
    operators = {each.name: each for *_, each in fused_groups_of((part,))}
    tensors = [fact.access for fact in contract.inputs if fact.type is not None]
    device = f"{tensors[0]}.device"
    names = parameter_names(contract.signature)
    own = spans.get(part.variant.suffix, ())
    sizes, modules = size_lines(contract), contract.modules
    turns = {each.variant.loop: _turn(each, spans) for each in bodies_of(part, parts)}
    lines = forward(part.plan, operators, device, sizes, names, own, modules, methods, turns)
    return [*replay(part, steps), *bound, *lines]


def _turn(part: Part, spans: Spans) -> Turn:
    operators = {each.name: each for *_, each in fused_groups_of((part,))}
    return Turn(part.plan, operators, spans.get(part.variant.suffix, ()))


def _guard_name(mode: tuple[Part, ...]) -> str:
    return f"_opweld_fits{mode[0].variant.guard_suffix}"


def _guard_lines(mode: tuple[Part, ...]) -> list[str]:
    contract = mode[0].variant.contract
    state = mode[0].variant.state
    told = f"the kernels for {state}" if state else "the kernels"
    graphs = [part.plan.graph for part in forwards_of(mode)]
    changed = frozenset().union(*(graph.changed for graph in graphs))
    updates = [each for graph in graphs for each in graph.updates if not each.assigned]
    updated = dict.fromkeys(each.buffer for each in updates)
    tests = guard(contract, mode[0].variant.guard_suffix, flags_of(mode), changed, updated)
    return [
        f"def {_guard_name(mode)}(self, {bare(contract.signature)}):",
        f'    """Whether {told} were made for this call."""',
        "    _kernels = self._opweld",
        *_indented(tests, 4),
    ]


def _indented(lines: list[str], spaces: int) -> list[str]:
    return [" " * spaces + each if each else "" for line in lines for each in line.split("\n")]
