"""The guard of the emitted forward: true where the captured graph is what the forward would do.

Cheap, as it runs at every call, and plain enough for torch.compile to trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..ir.contract import (
    CallableValue,
    Contract,
    InputFact,
    ModuleFact,
    OpaqueValue,
    SymbolFact,
    Variant,
    WeightFact,
)
from ..ir.expr import symbol
from ..ir.types import TensorType
from .spelling import dtype, number, size_name

AUTOCAST_DTYPES = ("bfloat16", "float16")
# Modules that PyTorch itself makes (inside MultiheadAttention) and does not export.
NOT_IN_TORCH_NN = frozenset(["NonDynamicallyQuantizableLinear"])


# Types that stand in no module.
_UNNAMED = {
    "builtins:function": "type(lambda: None)",
    "builtins:code": "type((lambda: None).__code__)",
}


def object_expression(name: str, original_module: str) -> str:
    """Python text for "module:qualname", given the name under which capture knew the original."""
    module, qualname = name.split(":")
    if module == original_module:
        return f'_named(_original, "{qualname}")'
    if name in _UNNAMED:
        return _UNNAMED[name]
    if module.startswith("torch.nn.modules.") and qualname not in NOT_IN_TORCH_NN:
        return f"torch.nn.{qualname}"
    if module == "torch":
        return f"torch.{qualname.removeprefix('_VariableFunctionsClass.')}"
    return f'_named("{module}", "{qualname}")'


def named_objects(contracts: tuple[Contract, ...]) -> tuple[str, ...]:
    """Names of all classes and functions that guards compare with, each once."""
    names: dict[str, None] = {}
    for fact in (f for contract in contracts for f in contract.modules):
        names.update({fact.type_name: None} if fact.path else {})
        for _, value in fact.attributes:
            names.update(dict.fromkeys(_names_in(value)))
    return tuple(names)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, CallableValue):
        yield value.name
    elif isinstance(value, OpaqueValue):
        yield value.type_name
    elif isinstance(value, dict):
        yield from (name for item in value.values() for name in _names_in(item))
    elif isinstance(value, tuple | list):
        yield from (name for item in value for name in _names_in(item))


def guard(
    contract: Contract, objects: tuple[str, ...], tf32: bool = False, tracks: bool = False
) -> list[str]:
    """The body of the guard. In scope: self, the forward's parameters, and `_weld`.

    `tf32`: there are kernels of less precision, which torch's flag must allow at this call too.
    `tracks`: the call changes buffers, which torch.func lets the library do and not us.
    """
    tests = [*_argument_tests(contract), *_state_tests(contract)]
    if tf32:
        tests.append("_weld.allows_tf32()")
    if tracks:
        tests.append("not torch._C._are_functorch_transforms_active()")
    own = next((f for f in contract.modules if not f.path), None)
    tests += _value_tests("self", own, objects) if own is not None else []
    lines: list[str] = []
    for path in _module_paths(contract):
        lines += [*_refused_unless(tests), _fetch(path)]
        tests = _module_tests(path, contract, objects)
    tests += _weight_tests(contract)
    last = _returned(tests) if contract.gradients else _unless_differentiated(tests, contract)
    return _sizes_read([*lines, *last], contract)


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
    plain = [f for f in contract.inputs if f.type is None and not _is_tie(f)]
    tests += [test for f in plain for test in _equal_tests(f.access, f.literal, ())]
    tensors = [f for f in contract.inputs if f.type is not None]
    for index, fact in enumerate(tensors):
        assert fact.type is not None
        devices = "_weld.devices" if index == 0 else _same_device(contract)
        tests += _tensor_tests(fact.access, fact.type, devices)
        tests += _layout_tests(fact.access, fact.type, contract)
    return tests + _symbol_tests(contract, tensors)


def _is_tie(fact: InputFact) -> bool:
    """Whether the fact says that two names of the module hold one tensor."""
    return fact.access.startswith("(self.")


def _same_device(contract: Contract) -> str:
    first = next((f.access for f in contract.inputs if f.type is not None), None)
    return f"({first}.device,)" if first else "_weld.devices"


def _tensor_tests(access: str, type: TensorType, devices: str) -> list[str]:
    # One that is conjugated when it is read cannot be seen as pairs.
    read = [f"not {access}.is_conj()"] if type.dtype.is_complex else []
    return [*_shape_tests(access, type, devices), *read]


def _shape_tests(access: str, type: TensorType, devices: str) -> list[str]:
    if all(isinstance(size, int) for size in type.shape):
        shape = _tuple(type.shape)
        return [f"_weld.plain({access}, {dtype(type.dtype)}, {devices}, {shape})"]
    return [
        f"_weld.plain({access}, {dtype(type.dtype)}, {devices})",
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


def _module_tests(path: str, contract: Contract, objects: tuple[str, ...]) -> list[str]:
    name = local_name(path)
    fact = next((f for f in contract.modules if f.path == path), None)
    if fact is None:
        return [f"{name} is not None"]
    kind = _object(fact.type_name, objects)
    test = "parametrized" if fact.parametrized else "unchanged"
    return [f"_weld.{test}({name}, {kind})", *_value_tests(name, fact, objects)]


def _object(name: str, objects: tuple[str, ...]) -> str:
    return f"_weld.objects[{objects.index(name)}]"


def _value_tests(name: str, fact: ModuleFact, objects: tuple[str, ...]) -> list[str]:
    """Tests of what the forward reads from a module beside its tensors."""
    tests: list[str] = []
    for key, value in fact.attributes:
        if key == "_modules":
            tests.append(f"tuple({name}._modules) == {value!r}")
        else:
            tests += _equal_tests(f"{name}.{key}", value, objects)
    if fact.mode is not None:
        tests.append(f"{name}.training is {fact.mode}")
    return tests


def _equal_tests(access: str, value: Any, objects: tuple[str, ...]) -> list[str]:
    """The value and its type, item by item: 2 and 2.0 and True are different constants."""
    if isinstance(value, CallableValue):
        return [f"{access} is {_object(value.name, objects)}"]
    if isinstance(value, OpaqueValue):
        return [f"type({access}) is {_object(value.type_name, objects)}"]
    if isinstance(value, tuple | list):
        tests = [f"type({access}) is {type(value).__name__} and len({access}) == {len(value)}"]
        items = [(f"{access}[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, dict):
        tests = [f"type({access}) is dict and tuple({access}) == {tuple(value)!r}"]
        items = [(f"{access}[{key!r}]", item) for key, item in value.items()]
    else:
        return [_literal_test(access, value)]
    return tests + [test for item in items for test in _equal_tests(*item, objects)]


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


def _weight_tests(contract: Contract) -> list[str]:
    tests: list[str] = []
    for weight in contract.weights:
        access = _weight_access(weight)
        tests += _tensor_tests(access, weight.type, _same_device(contract))
        tests += _layout_tests(access, weight.type, contract)
    return tests + [f.access.strip("()") for f in contract.inputs if _is_tie(f)]


def _weight_access(weight: WeightFact) -> str:
    owner, _, name = weight.path.rpartition(".")
    if not name.isidentifier():
        return f'{local_name(owner)}._parameters.get("{name}")'
    return f"{local_name(owner)}.{name}"


def _unless_differentiated(tests: list[str], contract: Contract) -> list[str]:
    """That the tests hold and no gradient is asked for: the graph's are not the forward's."""
    tensors = [fact.access for fact in contract.inputs if fact.type is not None]
    first, *others = [*tensors, *map(_weight_access, contract.weights)]
    return [
        *_refused_unless([*tests, "not torch._C._are_functorch_transforms_active()"]),
        "return not torch.is_grad_enabled() or not (",
        f"    {first}.requires_grad",
        *(f"    or {access}.requires_grad" for access in others),
        ")",
    ]
