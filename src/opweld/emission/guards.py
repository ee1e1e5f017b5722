"""The guard of the emitted forward: true where the captured graph is what the forward would do.

Cheap, as it runs at every call, and plain enough for torch.compile to trace.
"""

from __future__ import annotations

import re
from typing import Any

from ..ir.contract import Contract, InputFact, ModuleFact, SymbolFact, Variant
from ..ir.expr import symbol
from ..ir.types import TensorType
from .spelling import dtype, number

AUTOCAST_DTYPES = ("bfloat16", "float16")


def type_expression(type_name: str, original_module: str) -> str:
    """Python text for "module:qualname", given the name under which capture knew the original."""
    module, qualname = type_name.split(":")
    if module == original_module:
        return f"_original.{qualname}"
    if module.startswith("torch.nn.modules."):
        return f"torch.nn.{qualname}"
    return f'_imported("{module}", "{qualname}")'


def submodule_types(contracts: tuple[Contract, ...]) -> tuple[str, ...]:
    """Type names of all guarded submodules, each once; the module itself is not among them."""
    facts = (f for c in contracts for f in c.modules if f.path)
    return tuple(dict.fromkeys(f.type_name for f in facts))


def guard(
    variant: Variant, same_under_autocast: tuple[str, ...], types: tuple[str, ...]
) -> list[str]:
    """The body of one variant's guard. In scope: self, the forward's parameters, and `_weld`."""
    contract = variant.contract
    tests = [*_argument_tests(contract), *_state_tests(variant, same_under_autocast)]
    own = next((f for f in contract.modules if not f.path), None)
    tests += _value_tests("self", own) if own is not None else []
    lines = _refused_unless(tests)
    for path in _module_paths(contract):
        lines += [_fetch(path), *_refused_unless(_module_tests(path, contract, types))]
    return [*_sizes_first(lines, contract), *_returned(_weight_tests(contract))]


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
    tests = ["type(self) is _weld.model"]
    tests += [_literal_test(f.access, f.literal) for f in contract.inputs if f.type is None]
    tensors = [f for f in contract.inputs if f.type is not None]
    for index, fact in enumerate(tensors):
        assert fact.type is not None
        devices = "_weld.devices" if index == 0 else _same_device(contract)
        tests += _tensor_tests(fact.access, fact.type, devices)
    return tests + _symbol_tests(contract, tensors)


def _same_device(contract: Contract) -> str:
    first = next((f.access for f in contract.inputs if f.type is not None), None)
    return f"({first}.device,)" if first else "_weld.devices"


def _tensor_tests(access: str, type: TensorType, devices: str) -> list[str]:
    if all(isinstance(size, int) for size in type.shape):
        shape = _tuple(type.shape)
        return [f"_weld.plain({access}, {dtype(type.dtype)}, {devices}, {shape})"]
    return [
        f"_weld.plain({access}, {dtype(type.dtype)}, {devices})",
        f"{access}.dim() == {type.rank}",
    ]


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
        return [f"{fact.name} >= {fact.lower}"]
    return [f"{max(fact.lower, 0)} <= {fact.name} <= {fact.upper}"]


def size_lines(contract: Contract) -> list[str]:
    """`s0 = x.shape[0]` for each symbolic size."""
    return [f"{s.name} = {s.access[0]}.shape[{s.access[1]}]" for s in contract.symbols]


def _sizes_first(lines: list[str], contract: Contract) -> list[str]:
    """Symbolic sizes as the `shape` expressions that they are read from."""
    text = "\n".join(lines)
    for fact in contract.symbols:
        home = f"{fact.access[0]}.shape[{fact.access[1]}]"
        text = re.sub(rf"\b{fact.name}\b", home, text)
    return text.split("\n")


def _state_tests(variant: Variant, same_under_autocast: tuple[str, ...]) -> list[str]:
    """Forward-mode differentiation and global hooks need the original; autocast its own variant."""
    tests = ["torch.autograd.forward_ad._current_level < 0"]
    if any(fact.path for fact in variant.contract.modules):
        tests.append("not torch.nn.modules.module._has_any_global_hook()")
    return tests + _autocast_tests(variant.autocast, same_under_autocast)


def _autocast_tests(autocast: str | None, same: tuple[str, ...]) -> list[str]:
    enabled = "torch.is_autocast_enabled(_weld.device_type)"
    current = "torch.get_autocast_dtype(_weld.device_type)"
    if autocast is not None:
        return [enabled, f"{current} is torch.{autocast}"]
    if set(same) >= set(AUTOCAST_DTYPES):
        return []
    allowed = [f"{current} is torch.{name}" for name in same]
    return [" or ".join([f"not {enabled}", *allowed])]


def _module_paths(contract: Contract) -> list[str]:
    """Every module on the way to a guarded submodule or weight, outer ones first."""
    ends = [f.path for f in contract.modules if f.path]
    ends += [w.path.rpartition(".")[0] for w in contract.weights if "." in w.path]
    paths: dict[str, None] = {}
    for end in ends:
        parts = end.split(".")
        paths.update(dict.fromkeys(".".join(parts[: n + 1]) for n in range(len(parts))))
    return sorted(paths)


def local_name(path: str) -> str:
    """A local variable for the submodule at `path`; "" is the module itself."""
    return "self" if not path else "_module_" + re.sub(r"\W", "_", path)


def _fetch(path: str) -> str:
    parent, _, name = path.rpartition(".")
    return f'{local_name(path)} = {local_name(parent)}._modules.get("{name}")'


def _module_tests(path: str, contract: Contract, types: tuple[str, ...]) -> list[str]:
    name = local_name(path)
    fact = next((f for f in contract.modules if f.path == path), None)
    if fact is None:
        return [f"{name} is not None"]
    kind = f"_weld.types[{types.index(fact.type_name)}]"
    return [f"_weld.unchanged({name}, {kind})", *_value_tests(name, fact)]


def _value_tests(name: str, fact: ModuleFact) -> list[str]:
    tests = [_literal_test(f"{name}.{key}", value) for key, value in fact.attributes]
    if fact.mode is not None:
        tests.append(f"{name}.training is {fact.mode}")
    return tests


def _literal_test(access: str, value: Any) -> str:
    """The value and its type: 2 and 2.0 and True are different constants."""
    if value is None or isinstance(value, bool):
        return f"{access} is {value}"
    test = f"type({access}) is {type(value).__name__}"
    if isinstance(value, float) and (value != value or value == 0.0):
        return f'{test} and str({access}) == "{value}"'
    if isinstance(value, int | float | str):
        return f"{test} and {access} == {number(value)}"
    if isinstance(value, tuple | list):
        return f"{test} and str({access}) == {str(value)!r}"
    return f"str({access}) == {str(value)!r}"


def _weight_tests(contract: Contract) -> list[str]:
    tests: list[str] = []
    for weight in contract.weights:
        owner, _, name = weight.path.rpartition(".")
        access = f"{local_name(owner)}.{name}"
        tests += _tensor_tests(access, weight.type, _same_device(contract))
    return tests
