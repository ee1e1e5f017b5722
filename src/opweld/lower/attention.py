"""Attention -> how a score is computed, and the epilogue: what the kernels of the device library
call for each element.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.expr import symbols_of
from ..ir.graph import Node
from ..ir.index import flatten
from ..ir.kernels.attention import INNER, KEY, ROW, Attention, Seen
from ..ir.kernels.kernel import Access, Attending, Buffer, Element, Kernel, Load, Loop
from ..ir.ops import Op
from ..ir.plan import AttentionSchedule, Group
from .names import Names
from .pointwise import Builder, Origins, buffers_of, by_strides, params_of, row_major_kernel
from .space import extents_of


def lower_attention(origins: Origins, group: Group) -> Attending:
    """Operands are read by strides, but those of the epilogue, which are row-major."""
    attention, schedule = group.attention, group.schedule
    assert attention and isinstance(schedule, AttentionSchedule), "it is attention"
    buffers = buffers_of(group)
    scores, (q, k, v) = _scores(origins, group, attention, buffers)
    epilogue = row_major_kernel(origins, group, buffers)
    read = {load.buffer for load in epilogue.definitions if isinstance(load, Load)}
    touched = tuple(b for b in buffers if b.written or b.name in read)
    shared = symbols_of(k.address) | symbols_of(v.address)
    return Attending(
        group=group.name,
        family=schedule.family,
        scores=scores,
        q=q.name,
        k=k.name,
        v=v.name,
        depth=attention.depth,
        columns=attention.columns,
        alone=tuple(name for name, _ in attention.batch if name not in shared),
        factor=_factor(attention),
        causal=attention.causal,
        zeros=attention.zeros,
        place=flatten(attention.out, group.outputs[0].type.shape),
        buffers=buffers,
        epilogue=replace(epilogue, variant="epilogue", buffers=touched),
        shape=group.outputs[0].type.shape,
    )


def _factor(attention: Attention) -> float | None:
    """What a score is of its product, where that is all."""
    node, factor = attention.scores.node, float(attention.product.alpha)
    while node is not attention.anchor:
        constant = node.inputs[1] if len(node.inputs) == 2 else node
        if constant.op is not Op.CONST or not isinstance(constant.attrs.value, int | float):
            return None
        value = float(constant.attrs.value)
        if node.op is Op.MUL:
            factor *= value
        elif node.op is Op.DIV and value != 0.0:
            factor /= value
        else:
            return None
        node = node.inputs[0]
    return factor if 1e-30 < factor < 1e30 else None


def _scores(
    origins: Origins, group: Group, attention: Attention, buffers: tuple[Buffer, ...]
) -> tuple[Kernel, tuple[Load, Load, Load]]:
    loops = tuple(
        Loop(name, size)
        for name, size in (
            *attention.batch,
            (ROW, attention.queries),
            (KEY, attention.keys),
            (INNER, max(attention.depth, attention.columns)),
        )
    )
    read = {node.serial: buffers[place] for place, node in enumerate(group.inputs)}
    names = Names({buffer.name for buffer in buffers})
    builder = Builder(
        origins, read, names, by_strides, attention.bounds, attention.anchor, attention.product
    )
    q, k, v = (_load(builder, seen) for seen in (attention.q, attention.k, attention.v))
    seen = attention.scores
    results = ((seen.node.type.dtype, builder.value(seen.node, seen.coords, ())),)
    element = Element(
        f"{group.name}_score", params_of(builder, results), tuple(builder.lets), results
    )
    definitions = (q, k, v, *builder.definitions)
    used = {d.buffer for d in definitions if isinstance(d, Load)}
    touched = tuple(b for b in buffers if b.name in used)
    kernel = Kernel(
        name=group.name,
        variant="scores",
        comment=group.reason,
        buffers=touched,
        extents=extents_of(loops, definitions, (), touched),
        loops=loops,
        definitions=definitions,
        element=element,
        stores=(),
        lanes=1,
        vectors=1,
        threads=1,
    )
    return kernel, (q, k, v)


def _load(builder: Builder, seen: Seen) -> Load:
    node: Node = seen.node
    buffer = builder.buffers[node.serial]
    name = builder.names.fresh(buffer.name, always_number=True)
    address = by_strides(buffer, node, seen.coords)
    return Load(name, buffer.name, node.type.dtype, address, Access.LANE)
