"""Which matrix products a kernel of ours makes, in which mode, and why the others are the
library's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir.graph import Graph, Node
from ..ir.measured import NO_TABLE, Maker, ProductClass, Table
from ..ir.ops import Op
from ..ir.plan import Conditions
from ..ir.product import Mode, Product
from ..target import Target
from .cost import estimate_product, held_bytes
from .fusion import Cluster, fuse
from .measured import maker_of, measured, product_class
from .products import MODES, NoProduct, is_product, product_of
from .uses import behind_views, uses_of


@dataclass(frozen=True, slots=True)
class Choice:
    """By the call's serial: the products that become kernels, their modes, the figures that speak
    for each, and why others are refused. `classes` has those whose choice is by figures.
    """

    products: dict[int, Product] = field(default_factory=dict)
    modes: dict[int, Mode] = field(default_factory=dict)
    accepted: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    classes: dict[int, ProductClass] = field(default_factory=dict)


def choose_products(
    graph: Graph, target: Target, conditions: Conditions, table: Table = NO_TABLE
) -> Choice:
    """The products of a graph that are faster than the library's: as measured where the table has a
    row, and else as estimated.
    """
    if not target.products:
        return Choice()
    calls = [node for node in graph.nodes() if is_product(node)]
    choice = Choice()
    for call in calls:
        try:
            choice.products[call.serial] = _product(call, conditions)
            choice.modes[call.serial] = _mode(call, target, conditions)
        except NoProduct as reason:
            choice.products.pop(call.serial, None)
            choice.refused[call.serial] = f"a matrix product of the library's: {reason}"
    for cluster in fuse(uses_of(graph, choice.products)):
        if cluster.anchor is not None:
            _compare(choice, cluster, cluster.anchor, target, conditions, table)
    return choice


def _product(call: Node, conditions: Conditions) -> Product:
    if conditions.autocast:
        raise NoProduct("autocast casts its operands")
    product = product_of(call)
    is_weight = behind_views(product.b).op is Op.WEIGHT
    return replace(product, held=is_weight and conditions.weight_cache)


def _mode(call: Node, target: Target, conditions: Conditions) -> Mode:
    mode = MODES[call.type.dtype]
    if mode is Mode.FAITHFUL and conditions.tf32:
        mode = Mode.TF32
    if mode not in target.products:
        raise NoProduct(f"there is no kernel for it in mode {mode.value} yet")
    return mode


def _compare(
    choice: Choice,
    cluster: Cluster,
    anchor: Node,
    target: Target,
    conditions: Conditions,
    table: Table,
) -> None:
    """Keeps the product if its kernel and what that saves are faster than the library."""
    serial = anchor.serial
    product, mode = choice.products[serial], choice.modes[serial]
    tail = [node for node in cluster.nodes if node is not anchor]
    ours, library = estimate_product(anchor, product, mode, tail, target, conditions.sizes)
    rest = " and a kernel for the rest" if tail else ""
    figures = f"about {_us(ours)} us, the library{rest} {_us(library)} us"
    faster = ours < library
    shape = choice.classes[serial] = product_class(product, mode, tail, conditions.sizes)
    maker, row = maker_of(shape, target, table), table.row(target.name, shape)
    if maker is not None:
        faster = maker is Maker.OURS
        beaten = "a kernel of ours" if row and row.against is Maker.OURS else f"the library{rest}"
        figures = f"{measured(row)} of {beaten}" if row else figures
    if faster:
        kept = held_bytes(product, mode)
        memory = f"; {kept / 1e6:.1f} MB are kept of the weight, split again only where it changed"
        choice.accepted[serial] = figures + (memory if kept else "")
        return
    del choice.products[serial]
    choice.refused[serial] = f"a matrix product that gains nothing as a kernel of ours: {figures}"


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
