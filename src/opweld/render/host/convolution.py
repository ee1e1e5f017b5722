"""The host code of a convolution: its operands by strides, its windows, memory."""

from __future__ import annotations

from ...ir.expr import Size, product, symbols_of
from ...ir.kernels.convolution import Convolving
from ...ir.operator import Operator
from ..c import index_text
from ..cuda.convolution import entry_parameters, size_parameters
from .contraction import flat_operand, types_of
from .parts import reads, references, sizes, wrapped


def convolution_declarations(convolving: Convolving) -> list[str]:
    """The entries that the CUDA text defines."""
    name, taken = convolving.group, types_of(size_parameters())
    return [
        wrapped(f'extern "C" int64_t {name}_workspace(', taken, ");"),
        wrapped(f'extern "C" int {name}_convolve(', types_of(entry_parameters(convolving)), ");"),
    ]


def convolution_run(operator: Operator, convolving: Convolving) -> str:
    """Brings operands into the form that the kernels take, and runs them."""
    device = f"{operator.results[0].name}.get_device_index()"
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, _sizes(operator, convolving)),
        f"  if ({index_text(product(convolving.shape), str)} == 0) return;",
        f"  const torch::stable::accelerator::DeviceGuard device_guard({device});",
        *(
            flat_operand(b, operator.arguments[b.source])
            for b in convolving.touched
            if not b.written
        ),
        *_operands(operator, convolving),
        *_convolution(convolving),
        *_call(operator, convolving),
        "}",
    ]
    return "\n".join(lines)


def _sizes(operator: Operator, convolving: Convolving) -> frozenset[str]:
    """Symbolic sizes that the function names."""
    made = convolving.convolution
    flat = [b for b in convolving.touched if not b.written]
    shapes = [size for b in flat for size in operator.arguments[b.source].type.shape]
    named = (*convolving.shape, *made.x.type.shape, *made.out, *shapes)
    own = {name for size in named for name in symbols_of(size)}
    return frozenset(own | {e.name for e in convolving.extents})


def _operands(operator: Operator, convolving: Convolving) -> list[str]:
    """Pixels that are evenly spaced, filters without gaps: else copies."""
    made = convolving.convolution
    x, weight = (operator.arguments[place] for place in (convolving.x, convolving.weight))
    batch, *space, channels = (
        f"{{{index_text(made.x.type.shape[axis], str)}, {x.name}.stride({axis})}}"
        for axis in made.axes
    )
    roles = [f"{{{batch}}}", f"{{{', '.join(space)}}}", f"{{{channels}}}"]
    flat = wrapped("host::without_gaps(", [weight.name, sizes(weight.type)], ");", 6)
    return [
        f"  const auto pixels = {wrapped('host::matrix(', [x.name, *roles], ');', 6)}",
        f"  const Tensor filters = {flat}",
    ]


def _convolution(convolving: Convolving) -> list[str]:
    """What the entries are told of it; there are three axes of space."""
    made = convolving.convolution
    numbers = [index_text(size, str) for size in (made.batch, made.channels, made.filters)]
    windows: tuple[tuple[tuple[Size, ...], int], ...] = (
        (made.space, 1),
        (made.kernel, 1),
        (made.stride, 1),
        (made.padding, 0),
        (made.dilation, 1),
        (made.out, 1),
    )
    items = [
        "pixels.data()",
        "filters.const_data_ptr()",
        *numbers,
        *("pixels.batch", "pixels.row", "pixels.inner"),
        *(f"{{{', '.join(map(_int, _three(values, rest)))}}}" for values, rest in windows),
    ]
    return [f"  const host::Convolution {wrapped('convolution{', items, '};', 6)}"]


def _three(values: tuple[Size, ...], rest: int) -> tuple[Size, ...]:
    return (*(rest,) * (3 - len(values)), *values)


def _int(size: Size) -> str:
    return str(size) if isinstance(size, int) else f"int({index_text(size, str)})"


def _call(operator: Operator, convolving: Convolving) -> list[str]:
    name, touched = convolving.group, convolving.touched
    tensors = [b.name if b.written else f"{b.name}_flat" for b in touched]
    pointers = [
        f"{tensor}.{'mutable' if b.written else 'const'}_data_ptr()"
        for tensor, b in zip(tensors, touched, strict=True)
    ]
    listed = ", ".join(tensors)
    integers = [extent.name for extent in convolving.extents]  # row-major: sizes, no strides
    arguments = ["&convolution", *pointers, *integers]
    arguments += [f"host::largest_reach({listed})", f"host::all_aligned({listed})"]
    first = operator.results[0].name
    arguments += ["workspace.mutable_data_ptr()", f"host::current_stream({first})"]
    call = wrapped(f"{name}_convolve(", arguments, "));", 6)
    return [
        f"  const Tensor workspace = host::bytes_beside({first}, {name}_workspace(&convolution));",
        f'  host::check_launch("{operator.name}", {call}',
    ]
