"""The host code of attention: operands as they lie, memory, the call."""

from __future__ import annotations

from ...ir.expr import symbols_of
from ...ir.kernels.kernel import Attending, Buffer
from ...ir.operator import Argument, Operator
from ..c import index_text
from ..cuda.products.attention import COUNTS, counts, entry_integers, entry_parameters
from .parts import reads, references, sizes, wrapped


def attention_declarations(attending: Attending) -> list[str]:
    """The entries that the CUDA text defines."""
    name = attending.group
    types = [parameter.rpartition(" ")[0] for parameter in entry_parameters(attending)]
    sizes = ", ".join(["int64_t"] * len(COUNTS))
    return [
        f'extern "C" int64_t {name}_workspace({sizes});',
        wrapped(f'extern "C" int {name}_attend(', types, ");"),
    ]


def attention_run(operator: Operator, attending: Attending) -> str:
    """Runs the kernels on operands of any strides; those of the epilogue become row-major."""
    device = f"{operator.results[0].name}.get_device_index()"
    flat = [b for b in attending.epilogue.buffers if not b.written]
    values = [index_text(value, str) for value in counts(attending)]
    named = [f"{n} = {v}" for n, v in zip((*COUNTS, "row_step"), values, strict=True)]
    lines = [
        wrapped(f"void {operator.name}_run(", references(operator), ") {"),
        *reads(operator, _sizes(operator, attending, flat)),
        f"  const int64_t {wrapped('', named, ';', 6)}",
        f"  if ({operator.results[0].name}.numel() == 0) return;",
        f"  const torch::stable::accelerator::DeviceGuard device_guard({device});",
        *(_flat(b, operator.arguments[b.source]) for b in flat),
        *_launch(operator, attending),
        "}",
    ]
    return "\n".join(lines)


def _sizes(operator: Operator, attending: Attending, flat: list[Buffer]) -> frozenset[str]:
    """Symbolic sizes that the function names."""
    shapes = [size for b in flat for size in operator.arguments[b.source].type.shape]
    named = {name for size in (*counts(attending), *shapes) for name in symbols_of(size)}
    return frozenset(named | {e.name for e in entry_integers(attending)})


def _flat(buffer: Buffer, argument: Argument) -> str:
    items = [argument.name, sizes(argument.type)]
    return f"  const Tensor {buffer.name}_flat = {wrapped('host::without_gaps(', items, ');', 6)}"


def _launch(operator: Operator, attending: Attending) -> list[str]:
    name, result = attending.group, operator.results[0].name
    taken = [b.name if b.written else f"{b.name}_flat" for b in attending.epilogue.buffers]
    pointers = [f"{b.name}.const_data_ptr()" for b in attending.scores.buffers]
    pointers += [
        f"{tensor}.{'mutable' if b.written else 'const'}_data_ptr()"
        for tensor, b in zip(taken, attending.epilogue.buffers, strict=True)
    ]
    integers = [
        e.name if e.buffer is None else f"{e.buffer}.stride({e.axis})"
        for e in entry_integers(attending)
    ]
    listed = ", ".join(taken)
    arguments = [*pointers, *integers, *COUNTS, "row_step"]
    arguments += [f"host::largest_reach({listed})", f"host::all_aligned({listed})"]
    arguments += ["workspace.mutable_data_ptr()", f"host::current_stream({result})"]
    size = wrapped(f"{name}_workspace(", list(COUNTS), ")", 6)
    call = wrapped(f"{name}_attend(", arguments, "));", 6)
    return [
        f"  const Tensor workspace = host::bytes_beside({result},",
        f"      {size});",
        f'  host::check_launch("{operator.name}", {call}',
    ]
