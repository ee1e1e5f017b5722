"""The guard of the emitted forward: true where the captured graph is what the forward would do.

Cheap, as it runs at every call, and plain enough for torch.compile to trace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from ..ir.contract import (
    Contract,
    InputFact,
    SymbolFact,
    Variant,
)
from ..ir.expr import symbol
from ..ir.kernels.product import Mode
from ..ir.original import Part
from ..ir.plan import ContractionSchedule, ConvolutionSchedule
from ..ir.types import TensorType
from .facts import has_facts
from .spelling.ops import dtype, number, size_name

AUTOCAST_DTYPES = ("bfloat16", "float16")


def guard(
    contract: Contract,
    suffix: str,
    flags: Iterable[str] = (),
    changed: Collection[str] = (),
    updated: Collection[str] = (),
) -> list[str]:
    """The body of the guard. In scope: self, the forward's parameters, and `_kernels`.

    `suffix` tells the mode's names there from those of others. `flags`: by which functions torch's
    flags must allow kernels of less precision at this call too. `changed`: the buffers that the
    call changes, which torch.func lets the library do and not us; those that are `updated` must
    share no memory with what the call reads.
    """
    tests = [*_argument_tests(contract), *_state_tests(contract)]
    for fact in contract.assigned:
        assert fact.type is not None
        tests += _tensor_tests(fact.access, fact.type, _same_device(contract))
    tests += [f"_kernels.{flag}()" for flag in flags]
    if updated:
        tensors = [fact.access for fact in contract.inputs if fact.type is not None]
        tests.append(f"_kernels.unshared([{', '.join(updated)}], [{', '.join(tensors)}])")
    if changed and contract.differentiable:
        tests.append("not torch._C._are_functorch_transforms_active()")
    if has_facts(contract):
        gradients = "" if contract.differentiable else ", gradients=False"
        tests.append(f"_kernels.holds{suffix}(self, {_same_device(contract)}{gradients})")
    tests += [f.access.strip("()") for f in contract.inputs if _is_tie(f)]
    if contract.differentiable:
        return _sizes_read(_returned(tests), contract)
    return _sizes_read(_unless_differentiated(tests, contract), contract)


_FLAGS = {ContractionSchedule: "allows_tf32", ConvolutionSchedule: "allows_tf32_convolutions"}
"""What says that torch's flags allow kernels of less precision."""


def flags_of(parts: tuple[Part, ...]) -> tuple[str, ...]:
    """The functions of the support that tell whether torch's flags allow these kernels."""
    schedules = [group.schedule for part in parts for group in part.plan.groups]
    made = (s for s in schedules if isinstance(s, ContractionSchedule | ConvolutionSchedule))
    return tuple(sorted({_FLAGS[type(s)] for s in made if s.mode is Mode.TF32}))


def _refused_unless(tests: list[str]) -> list[str]:
    """`return False` unless all tests hold; they are made in their order."""
    if not tests:
        return []
    if len(tests) == 1:
        return [f"if not ({tests[0]}):", "    return False"]
    return ["if not (", *_conjunction(tests), "):", "    return False"]


def _returned(tests: list[str]) -> list[str]:
    return ["return (", *_conjunction(tests), ")"] if tests else ["return True"]


def _conjunction(tests: list[str]) -> list[str]:
    return [f"    {'and ' if index else ''}{_grouped(test)}" for index, test in enumerate(tests)]


def _grouped(test: str) -> str:
    return f"({test})" if " or " in test else test


def _argument_tests(contract: Contract) -> list[str]:
    """Tests of the arguments, in an order in which each one's access is safe."""
    tests = ["type(self) is _kernels.model or _kernels.sharded(type(self))"]
    plain = [f for f in contract.inputs if f.type is None and not _is_tie(f)]
    tests += [test for f in plain for test in _equal_tests(f.access, f.literal)]
    tensors = [f for f in contract.inputs if f.type is not None]
    for index, fact in enumerate(tensors):
        assert fact.type is not None
        devices = "_kernels.devices" if index == 0 else _same_device(contract)
        tests += _tensor_tests(fact.access, fact.type, devices)
        tests += _layout_tests(fact.access, fact.type, contract)
    return tests + _symbol_tests(contract, tensors)


def _is_tie(fact: InputFact) -> bool:
    """Whether the fact says that two names of the module hold one tensor."""
    return fact.access.startswith("(self.")


def _same_device(contract: Contract) -> str:
    first = next((f.access for f in contract.inputs if f.type is not None), None)
    return f"({first}.device,)" if first else "_kernels.devices"


def _tensor_tests(access: str, type: TensorType, devices: str) -> list[str]:
    # One that is conjugated when it is read cannot be seen as pairs.
    read = [f"not {access}.is_conj()"] if type.dtype.is_complex else []
    return [*_shape_tests(access, type, devices), *read]


def _shape_tests(access: str, type: TensorType, devices: str) -> list[str]:
    if all(isinstance(size, int) for size in type.shape):
        shape = _tuple(type.shape)
        return [f"_kernels.plain({access}, {dtype(type.dtype)}, {devices}, {shape})"]
    return [
        f"_kernels.plain({access}, {dtype(type.dtype)}, {devices})",
        f"{access}.dim() == {type.rank}",
    ]


def _layout_tests(access: str, type: TensorType, contract: Contract) -> list[str]:
    return [f"{access}.is_contiguous()"] if contract.row_major and type.rank > 1 else []


def _tuple(sizes: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _symbol_tests(contract: Contract, tensors: list[InputFact]) -> list[str]:
    """The sizes that are not fixed as a whole: fixed axes, ranges, and equalities between axes."""
    homes = {(s.access[0], s.access[1]) for s in contract.symbols}
    tests = [test for s in contract.symbols for test in _range_test(s)]
    for fact in tensors:
        assert fact.type is not None
        if all(isinstance(size, int) for size in fact.type.shape):
            continue
        for axis, size in enumerate(fact.type.shape):
            if (fact.access, axis) not in homes or not _is_symbol(size, contract):
                tests.append(f"{fact.access}.shape[{axis}] == {number(size)}")
    return tests


def _is_symbol(size: Any, contract: Contract) -> bool:
    return any(size == symbol(s.name) for s in contract.symbols)


def _range_test(fact: SymbolFact) -> list[str]:
    if fact.lower <= 0 and fact.upper is None:
        return []
    if fact.upper is None:
        return [f"{size_name(fact.name)} >= {fact.lower}"]
    return [f"{max(fact.lower, 0)} <= {size_name(fact.name)} <= {fact.upper}"]


def size_lines(contract: Contract) -> list[str]:
    """`s0 = x.shape[0]` for each symbolic size."""
    return [f"{size_name(s.name)} = {s.access[0]}.shape[{s.access[1]}]" for s in contract.symbols]


def _sizes_read(lines: list[str], contract: Contract) -> list[str]:
    """Symbolic sizes as the `shape` expressions that they are read from."""
    text = "\n".join(lines)
    for fact in contract.symbols:
        home = f"{fact.access[0]}.shape[{fact.access[1]}]"
        text = re.sub(rf"\b{size_name(fact.name)}\b", home, text)
    return text.split("\n")


def _state_tests(contract: Contract) -> list[str]:
    """Forward-mode differentiation and global hooks are left to the original."""
    tests = ["torch.autograd.forward_ad._current_level < 0"]
    if any(fact.path for fact in contract.modules):
        tests.append("not torch.nn.modules.module._has_any_global_hook()")
    return tests


def autocast_test(name: str, variant: Variant) -> str:
    """Whether a variant is the one for the dtype `name`, None where autocast is off."""
    dtypes = [f"torch.{each}" for each in variant.also]
    own = "None" if variant.autocast is None else f"torch.{variant.autocast}"
    return " or ".join(f"{name} is {each}" for each in (own, *dtypes))


def _equal_tests(access: str, value: Any) -> list[str]:
    """The value and its type, item by item: 2 and 2.0 and True are different constants."""
    if isinstance(value, tuple | list):
        tests = [f"type({access}) is {type(value).__name__} and len({access}) == {len(value)}"]
        items = [(f"{access}[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, dict):
        tests = [f"type({access}) is dict and tuple({access}) == {tuple(value)!r}"]
        items = [(f"{access}[{key!r}]", item) for key, item in value.items()]
    else:
        return [_literal_test(access, value)]
    return tests + [test for item in items for test in _equal_tests(*item)]


def _literal_test(access: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"{access} is {value}"
    if not isinstance(value, int | float | str):
        # A dtype, layout, memory format or device: its text is its name in torch.
        return f"str({access}) == {str(value)!r}"
    kind = f"type({access}) is {type(value).__name__}"
    if isinstance(value, float) and (value != value or value == 0.0):
        return f'{kind} and str({access}) == "{value}"'
    return f"{kind} and {access} == {number(value)}"


def _unless_differentiated(tests: list[str], contract: Contract) -> list[str]:
    """That the tests hold and no gradient is asked for: the graph's are not the forward's."""
    tensors = [fact.access for fact in contract.inputs if fact.type is not None]
    asking = [f"{access}.requires_grad" for access in tensors]
    first, *others = asking
    return [
        *_refused_unless([*tests, "not torch._C._are_functorch_transforms_active()"]),
        "return not torch.is_grad_enabled() or not (",
        f"    {first}",
        *(f"    or {each}" for each in others),
        ")",
    ]
