"""The host code of kernels that are given a table of tensors, which they check: a few lines an
operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...ir.operator import CHANNELS_LAST, Argument, Operator, Result
from ..c import index_text
from ..cuda.kept import KEPT_PARAMETERS
from .parts import scalar_type, wrapped


def table_declarations(group: str, scratch: bool) -> list[str]:
    """The C functions that the CUDA text defines; with `scratch`, what memory it takes, too."""
    lines = [f'extern "C" int {group}_launch(const TensorView* operands, void* stream);']
    memory = f'extern "C" int64_t {group}_scratch(const TensorView* operands);'
    return [*lines, *([memory] if scratch else [])]


def table_operator(operator: Operator, scratch: bool, sizes: tuple[str, ...]) -> str:
    """The operator, and the one whose first result takes the memory of an argument; `sizes` are
    those that no tensor shows.
    """
    made = [_allocation(operator, result) for result in operator.results]
    lines = _function(operator, operator.name, made, 0, scratch, sizes)
    if operator.reuse is not None:
        made[0] = operator.arguments[operator.reuse].name
        lines += _function(operator, f"{operator.name}_into", made, 1, scratch, sizes)
    return "\n".join(lines) + "\n"


def kept_declarations(group: str) -> list[str]:
    """The C functions beside them where results are kept."""
    return [
        wrapped(f'extern "C" int {group}_{name}(', _types(parameters), ");")
        for name, parameters in KEPT_PARAMETERS.items()
    ]


def _types(parameters: Iterable[str]) -> list[str]:
    return [parameter.rpartition(" ")[0] for parameter in parameters]


def kept_operator(operator: Operator, sites: int) -> str:
    """The operator of a reduction whose results are kept from call to call. A forward calls it at
    so many sites, which may have a weight each.
    """
    results = [_allocation(operator, result) for result in operator.results]
    (weight,) = operator.arguments
    num, name = len(results), operator.name
    returns = "Tensor" if num == 1 else f"std::tuple<{_tensors(num)}>"
    functions = [f"{name}_{each}" for each in ("launch", "scratch", "check", "give")]
    made = f"std::array<Tensor, {num}>{{\n      {(',' + chr(10) + '      ').join(results)}}}"
    items = ["__func__", wrapped("host::KeptCalls{", functions, "}", 6), "forms", made, weight.name]
    lines = [
        f"{returns} {name}(Tensor {weight.name}) {{",
        "  // CUDA may be gone when statics end",
        f"  static host::Held& forms = *new host::Held{'' if sites == 1 else f'({sites})'};",
        f"  return {wrapped('host::run_kept(', items, ');')}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _function(
    operator: Operator,
    name: str,
    results: list[str],
    kept: int,
    scratch: bool,
    sizes: tuple[str, ...],
) -> list[str]:
    """`kept` is the number of the first results that are not returned."""
    num = len(results) - kept
    returns = "void" if not num else "Tensor" if num == 1 else f"std::tuple<{_tensors(num)}>"
    parameters = [f"{_type(argument)} {argument.name}" for argument in operator.arguments]
    parameters += [f"int64_t {size}" for size in operator.sizes]
    run_by = "host::run_in_pieces(" if scratch else "host::run("
    items = ["__func__", f"{operator.name}_launch"]
    items += [f"{operator.name}_scratch"] if scratch else []
    items.append(f"std::array{{{', '.join(results)}}}")
    items += [_given(argument) for argument in operator.arguments]
    first = operator.arguments[0]
    items += [f"host::Sizes({first.tensor(first.name)}, {{{', '.join(sizes)}}})"] if sizes else []
    if not kept:
        run = [f"  return {wrapped(run_by, items, ');')}"]
    elif not num:
        run = [f"  {wrapped(run_by, items, ');')}"]
    else:
        run = [
            f"  const auto made = {wrapped(run_by, items, ');')}",
            f"  return {_rest(num)};",
        ]
    head = wrapped(f"{returns} {name}(", parameters, ") {")
    line = f"{head} {run[0].strip()} }}"
    return [line] if len(run) == 1 and len(line) <= 100 and "\n" not in line else [head, *run, "}"]


def _type(argument: Argument) -> str:
    return "Tensor" if argument.listed is None else "std::vector<Tensor>"


def _given(argument: Argument) -> str:
    return argument.name if argument.listed is None else f"host::List({argument.name})"


def _tensors(num: int) -> str:
    return ", ".join(["Tensor"] * num)


def _rest(num: int) -> str:
    """What is made but for the first."""
    each = ", ".join(f"std::get<{i + 1}>(made)" for i in range(num))
    return each if num == 1 else f"std::make_tuple({each})"


def _allocation(operator: Operator, result: Result) -> str:
    first = operator.arguments[result.like or 0]
    beside = first.tensor(first.name)
    if result.like is not None:
        return f"host::like({beside}, {scalar_type(result.type)})"
    sizes = ", ".join(index_text(size, str) for size in result.type.shape)
    for read in operator.reads:
        argument = operator.arguments[read.argument]
        size = f"{argument.tensor(argument.name)}.size({read.axis})"
        sizes = re.sub(rf"\b{read.name}\b", size, sizes)
    shape = f"std::array<int64_t, {result.type.rank}>{{{sizes}}}"
    made = f"{beside}, {scalar_type(result.type)}, {shape}"
    return (
        f"host::in_format({CHANNELS_LAST}, {made})"
        if result.in_format
        else f"host::in_rows({made})"
    )
