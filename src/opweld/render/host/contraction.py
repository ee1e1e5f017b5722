"""The host code of a matrix product: operands by strides, memory, the weight's kept form."""

from __future__ import annotations

from ...ir.expr import Size, product, symbols_of
from ...ir.kernels.kernel import Buffer, Contraction, Factor
from ...ir.kernels.product import Axis, extent
from ...ir.operator import Argument, Operator
from ..c import index_text
from ..cuda.products.contraction import (
    entry_parameters,
    held_parameters,
    needs_workspace,
    size_parameters,
)
from .parts import reads, references, sizes, wrapped


def entry_declarations(contraction: Contraction) -> list[str]:
    """The entries that the CUDA text defines."""
    name = contraction.group
    entries = {
        "int64_t workspace": size_parameters() if needs_workspace(contraction) else (),
        "int64_t held": held_parameters() if contraction.held else (),
        "int contract": entry_parameters(contraction),
    }
    return [
        wrapped(f'extern "C" {result} {name}_{entry}(', _types(parameters), ");")
        for (result, entry), parameters in ((key.split(), of) for key, of in entries.items() if of)
    ]


def _types(parameters: list[str]) -> list[str]:
    return [parameter.rpartition(" ")[0] for parameter in parameters]


def contraction_run(operator: Operator, contraction: Contraction, sites: int) -> str:
    """Brings operands into the form that the kernels take, and runs them. A forward calls it at so
    many sites, which may have a weight each.
    """
    device = f"{operator.results[0].name}.get_device_index()"
    flat = [b for b in contraction.touched if not b.written]
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, _sizes(operator, contraction, flat)),
        f"  if ({index_text(product(contraction.shape), str)} == 0) return;",
        f"  const torch::stable::accelerator::DeviceGuard device_guard({device});",
        *(_flat(b, operator.arguments[b.source]) for b in flat),
        *_matrix("a", operator, contraction.a),
        *_matrix("b", operator, contraction.b),
        *_product(contraction),
        f"  void* const stream = host::current_stream({operator.results[0].name});",
        *_launch(operator, contraction, sites),
        "}",
    ]
    return "\n".join(lines)


def _sizes(operator: Operator, contraction: Contraction, flat: list[Buffer]) -> frozenset[str]:
    """Symbolic sizes that the function names."""
    axes = [axis.size for factor in (contraction.a, contraction.b) for axis in _all(factor)]
    shapes = [size for b in flat for size in operator.arguments[b.source].type.shape]
    named = {name for size in (*axes, *shapes) for name in symbols_of(size)}
    named |= {name for size in _strides(contraction) for name in symbols_of(size)}
    return frozenset(named | {e.name for e in contraction.extents})


def _strides(contraction: Contraction) -> tuple[Size, ...]:
    """Of an operand a that is computed."""
    return contraction.prologue.strides if contraction.prologue else ()


def _all(factor: Factor) -> tuple[Axis, ...]:
    return (*factor.axes.batch, *factor.axes.rows, *factor.axes.inner)


def _product(contraction: Contraction) -> list[str]:
    """What the entries are told of the operands: where they lie, and the extents."""
    a, b = contraction.a.axes, contraction.b.axes
    computed = ", ".join(index_text(stride, str) for stride in _strides(contraction))
    extents = [extent(axes) for axes in (a.batch, a.rows, b.rows, a.inner)]
    items = [
        f"{{nullptr, {computed}}}" if contraction.prologue else "a_matrix.operand()",
        "b_matrix.operand()",
        *(index_text(value, str) for value in extents),
    ]
    return [f"  const host::Product {wrapped('product{', items, '};', 6)}"]


def _flat(buffer: Buffer, argument: Argument) -> str:
    items = [argument.name, sizes(argument.type)]
    return f"  const Tensor {buffer.name}_flat = {wrapped('host::without_gaps(', items, ');', 6)}"


def _matrix(side: str, operator: Operator, factor: Factor) -> list[str]:
    if factor.source is None:
        return []
    name = operator.arguments[factor.source].name
    roles = (factor.axes.batch, factor.axes.rows, factor.axes.inner)
    items = [name, *(_axes(name, axes) for axes in roles)]
    return [f"  const auto {side}_matrix = {wrapped('host::matrix(', items, ');', 6)}"]


def _axes(name: str, axes: tuple[Axis, ...]) -> str:
    pairs = [f"{{{index_text(axis.size, str)}, {_stride(name, axis)}}}" for axis in axes]
    return f"{{{', '.join(pairs)}}}"


def _stride(name: str, axis: Axis) -> str:
    return "0" if axis.place is None else f"{name}.stride({axis.place})"


def _launch(operator: Operator, contraction: Contraction, sites: int) -> list[str]:
    if not contraction.held:
        return _call(operator, contraction, "nullptr", "0")
    return [
        "  // CUDA may be gone when statics end",
        f"  static host::Held& forms = *new host::Held{'' if sites == 1 else f'({sites})'};",
        f"  const int64_t held_bytes = {contraction.group}_held(&product);",
        "  host::with_held(forms, b_matrix, product, held_bytes, stream,"
        " [&](void* held, int changed) {",
        *(
            f"  {line}"
            for part in _call(operator, contraction, "held", "changed")
            for line in part.splitlines()
        ),
        "  });",
    ]


def _call(operator: Operator, contraction: Contraction, held: str, changed: str) -> list[str]:
    """Makes the product, b in the form `held`."""
    name, touched = contraction.group, contraction.touched
    tensors = [b.name if b.written else f"{b.name}_flat" for b in touched]
    pointers = [
        f"{tensor}.{'mutable' if b.written else 'const'}_data_ptr()"
        for tensor, b in zip(tensors, touched, strict=True)
    ]
    listed = ", ".join(tensors)
    integers = [extent.name for extent in contraction.extents]  # row-major: sizes, no strides
    arguments = ["&product", *pointers, *integers]
    arguments += [f"host::largest_reach({listed})", f"host::all_aligned({listed})"]
    workspace = "workspace.mutable_data_ptr()" if needs_workspace(contraction) else "nullptr"
    arguments += [workspace, held, changed, "stream"]
    is_held = "held != nullptr" if contraction.held else "0"
    call = wrapped(f"{name}_contract(", arguments, "));", 6)
    made = [
        f"  const Tensor workspace = host::bytes_beside({operator.results[0].name},",
        f"      {name}_workspace(&product, {is_held}));",
    ]
    launch = f'  host::check_launch("{operator.name}", {call}'
    return [*(made if needs_workspace(contraction) else ()), launch]
