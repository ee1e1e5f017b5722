"""Whether a kernel defines every name before its use and stores every result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..attrs import ReduceAttrs, ScanAttrs
from ..expr import Size, coefficient, divides, gathers_of, product, symbols_of
from ..infer import INDEX_DTYPES, TypeRule
from ..ops import OPS, Kind, Op
from ..types import DType, TensorType
from .convolution import Convolving
from .kernel import (
    Arg,
    Attending,
    Between,
    Buffer,
    Condition,
    Const,
    Contraction,
    Definition,
    Element,
    Gather,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Multiplied,
    Pointwise,
    RowBlocks,
    RowScalar,
    Store,
    Test,
    expressions_of,
)
from .reduction import Fold, Folding, Reduction, Scan


class InvalidKernel(ValueError):
    """A kernel that breaks a rule; the text names the kernel and the name concerned."""


def check_fused(fused: Pointwise) -> None:
    """Both kernels are well formed and share their element."""
    check_kernel(fused.contiguous)
    check_kernel(fused.strided)
    if fused.contiguous.element != fused.strided.element:
        raise InvalidKernel(f"the kernels of {fused.group} compute different elements")


def check_convolving(convolving: Convolving) -> None:
    """The epilogue is well formed, takes the result once, and touches operands of the group."""
    _check_taken(convolving.group, convolving.epilogue, "result")
    _check_given(convolving.group, convolving.kernels, convolving.buffers)
    if any(convolving.buffers[place].written for place in (convolving.x, convolving.weight)):
        raise InvalidKernel(f"{convolving.group} reads one of its results")
    if len(convolving.axes) != sum(not b.written for b in convolving.epilogue.buffers):
        raise InvalidKernel(f"{convolving.group} does not tell how its operands lie")


def check_contraction(contraction: Contraction) -> None:
    """The epilogue is well formed, takes the product once, and touches operands of the group."""
    _check_taken(contraction.group, contraction.epilogue)
    if (contraction.prologue is None) is (contraction.a.source is None):
        raise InvalidKernel(f"{contraction.group} has its operand a from nowhere, or twice")
    if contraction.prologue is not None:
        _check_prologue(contraction.group, contraction.prologue.kernel)
    _check_given(contraction.group, contraction.kernels, contraction.buffers)


def _check_taken(group: str, kernel: Kernel, made: str = "product") -> None:
    """It is well formed and takes once what was `made` before it."""
    check_kernel(kernel)
    taken = [d for d in kernel.definitions if isinstance(d, Multiplied)]
    if len(taken) != 1:
        raise InvalidKernel(f"{group} takes its {made} {len(taken)} times")


def _check_given(group: str, kernels: Iterable[Kernel], buffers: Iterable[Buffer]) -> None:
    """They touch operands of the group alone."""
    known = {buffer.name for buffer in buffers}
    unknown = [b.name for kernel in kernels for b in kernel.buffers if b.name not in known]
    if unknown:
        raise InvalidKernel(f"{group} touches {unknown[0]}, which it is not given")


def _check_prologue(group: str, kernel: Kernel) -> None:
    """It computes one float32 value and stores nothing."""
    check_kernel(kernel)
    if [dtype for dtype, _ in kernel.element.results] != [DType.F32]:
        raise InvalidKernel(f"the prologue of {group} does not compute a value of float32")
    if kernel.stores or any(isinstance(d, Multiplied) for d in kernel.definitions):
        raise InvalidKernel(f"the prologue of {group} does more than compute a value")


def check_attending(attending: Attending) -> None:
    """Both kernels are well formed, each takes one product, and rows are evenly spaced."""
    for kernel in attending.kernels:
        _check_taken(attending.group, kernel)
    _check_given(attending.group, attending.kernels, attending.buffers)
    rows, keys, inner = attending.rows
    addresses = [(attending.place, rows), (attending.address(attending.q), rows)]
    addresses += [(attending.address(name), keys) for name in (attending.k, attending.v)]
    for address, loop in addresses:
        if any(coefficient(address, each.var) is None for each in (loop, inner)):
            raise InvalidKernel(f"{attending.group} reads or writes rows that are not even")


def check_reduction(reduction: Reduction) -> None:
    """Both foldings are well formed, and every step reads only what is known of the row."""
    for folding in reduction.foldings:
        try:
            _check_folding(folding)
            _require_written(folding.kernels)
        except InvalidKernel as error:
            raise InvalidKernel(f"{folding.name} ({folding.variant}): {error}") from None
    steps = reduction.contiguous.steps
    if reduction.cut and (len(steps) > 1 or steps[0].walk.kernel.stores):
        raise InvalidKernel(f"{reduction.group} is cut, and does more than fold")


def check_scan(scan: Scan) -> None:
    """Both foldings are well formed: what the first half scans is read by the second, which
    stores.
    """
    for folding in scan.foldings:
        try:
            _check_folding(folding)
            _require_written(folding.kernels)
            _require_halves(folding)
        except InvalidKernel as error:
            raise InvalidKernel(f"{folding.name} ({folding.variant}): {error}") from None


def _require_halves(folding: Folding) -> None:
    if not folding.scanned or len(folding.steps) != 2 or len(folding.reduced) != 1:
        raise InvalidKernel("a scan has two halves along one loop")
    first, second = (step.walk for step in folding.steps)
    if first.kernel.stores or second.folds or any(step.once for step in folding.steps):
        raise InvalidKernel("a scan stores in its second half alone")


def _check_folding(folding: Folding) -> None:
    known: dict[str, DType] = {}
    for step in folding.steps:
        _check_step_kernel(step.walk.kernel, known, (*folding.kept, *folding.reduced))
        for fold in step.walk.folds:
            _check_fold(fold, step.walk.kernel.element, folding.scanned)
            _learn(known, fold.name, fold.dtype)
        if step.once is None:
            continue
        _check_step_kernel(step.once.kernel, known, folding.kept)
        for value in step.once.values:
            if step.once.kernel.element.results[value.result][0] is not value.dtype:
                raise InvalidKernel(f"{value.name} is not {value.dtype.value}")
            _learn(known, value.name, value.dtype)


def _learn(known: dict[str, DType], name: str, dtype: DType) -> None:
    if name in known:
        raise InvalidKernel(f"{name} is defined twice")
    known[name] = dtype


def _check_step_kernel(kernel: Kernel, known: dict[str, DType], loops: tuple[Loop, ...]) -> None:
    if kernel.loops != loops:
        raise InvalidKernel("its kernels have different loops")
    for definition in kernel.definitions:
        if isinstance(definition, RowScalar) and known.get(definition.name) is not definition.dtype:
            raise InvalidKernel(f"{definition.name} is not known of the row yet")
    _check_one(kernel)


def _check_fold(fold: Fold, element: Element, scanned: bool) -> None:
    operand = element.results[fold.result][0]
    kind, attrs = (Kind.SCAN, ScanAttrs(0)) if scanned else (Kind.REDUCTION, ReduceAttrs((0,)))
    if OPS[fold.op].kind is not kind:
        raise InvalidKernel(f"{fold.name} is no {kind.value}")
    expected = OPS[fold.op].infer((TensorType(operand, (1,)),), attrs).dtype
    if expected is not fold.dtype:
        raise InvalidKernel(f"{fold.name} is no fold of {operand.value} to {fold.dtype.value}")


def check_row_blocks(blocks: RowBlocks) -> None:
    """The tail is well formed, and its operands are the product and those of the group."""
    check_fused(blocks.tail)
    given = {buffer.name for buffer in blocks.buffers} | {blocks.product}
    unknown = [buffer.name for buffer in blocks.tail.buffers if buffer.name not in given]
    if unknown:
        raise InvalidKernel(f"{blocks.group} touches {unknown[0]}, which it is not given")
    operands = [b.source for b in blocks.buffers if not b.written]
    if not {blocks.a, blocks.b, *([] if blocks.added is None else [blocks.added])} <= {*operands}:
        raise InvalidKernel(f"{blocks.group} multiplies what it is not given")


def check_kernel(kernel: Kernel) -> None:
    """Raises InvalidKernel where a name is unknown, defined twice or of another dtype."""
    try:
        _check_one(kernel)
        _require_written((kernel,))
    except InvalidKernel as error:
        raise InvalidKernel(f"{kernel.name} ({kernel.variant}): {error}") from None


def _check_one(kernel: Kernel) -> None:
    _check_names(kernel)
    _check_turns(kernel)
    _check_element(kernel.element, _definition_dtypes(kernel))
    _check_stores(kernel)


def _check_names(kernel: Kernel) -> None:
    names = [
        *(buffer.name for buffer in kernel.buffers),
        *(extent.name for extent in kernel.extents),
        *(loop.var for loop in kernel.loops),
        *(definition.name for definition in kernel.definitions),
    ]
    _refuse_duplicates(names)
    sizes = _extent_names(kernel)
    for loop in kernel.loops:
        _check_expr(loop.extent, sizes, f"loop {loop.var}")
    integers = sizes | {loop.var for loop in kernel.loops}
    inputs = {buffer.name: buffer.dtype for buffer in kernel.buffers if not buffer.written}
    before: dict[str, Definition] = {}
    for definition in kernel.definitions:
        _check_definition(definition, integers, inputs)
        _check_gathers(definition, before)
        before[definition.name] = definition
    for store in kernel.stores:
        if gathers_of(store.address):
            raise InvalidKernel(f"an index tells where {store.buffer} is stored")


def _check_turns(kernel: Kernel) -> None:
    """Packets lie within a turn of the loops that threads go through."""
    if kernel.turned == 0:
        return
    inner = product(loop.extent for loop in kernel.loops[kernel.turned :])
    whole = divides(kernel.lanes, inner) or inner in kernel.multiples
    if not 0 < kernel.turned < len(kernel.loops) or not whole:
        raise InvalidKernel(f"threads cannot go through {kernel.turned} loops")


def _check_definition(definition: Definition, integers: set[str], inputs: dict[str, DType]) -> None:
    name = definition.name
    if isinstance(definition, Index):
        return _check_expr(definition.expr, integers, name)
    if isinstance(definition, Multiplied | RowScalar):
        return None
    if isinstance(definition, Test):
        return _check_condition(definition.condition, integers, name)
    if isinstance(definition, Gather):
        for expr in (*definition.coords, definition.extent):
            _check_expr(expr, integers, name)
        return _check_condition(definition.guard, integers, name)
    if definition.buffer not in inputs:
        raise InvalidKernel(f"{name} is loaded from {definition.buffer}, which is no input")
    if definition.dtype is not inputs[definition.buffer]:
        raise InvalidKernel(f"{name} is not of the dtype of {definition.buffer}")
    _check_expr(definition.address, integers, name)
    return _check_condition(definition.guard, integers, name)


def _check_gathers(definition: Definition, before: Mapping[str, Definition]) -> None:
    """Places that indices tell are told before, from numbers that are known."""
    for expr in expressions_of(definition):
        for place in gathers_of(expr):
            pick = before.get(place.name)
            if not isinstance(pick, Gather) or (pick.coords, pick.extent) != place.told_by:
                raise InvalidKernel(f"{definition.name} uses {place}, which no index tells")
    if isinstance(definition, Gather):
        read = before.get(definition.index)
        if not isinstance(read, Load | Index):
            raise InvalidKernel(f"{definition.name} needs {definition.index}, which is not read")
        if isinstance(read, Load) and read.dtype not in INDEX_DTYPES:
            raise InvalidKernel(f"{definition.index} is {read.dtype.value}, and no index")


def _check_condition(condition: Condition, integers: set[str], name: str) -> None:
    for between in condition:
        for expr in _parts(between):
            _check_expr(expr, integers, name)


def _parts(between: Between) -> tuple[Size, Size, Size]:
    return between.expr, between.low, between.high


def _check_expr(expr: Size, integers: set[str], name: str) -> None:
    unknown = symbols_of(expr) - integers
    if unknown:
        raise InvalidKernel(f"{name} uses {min(unknown)}, which is neither a loop nor a size")


def _check_element(element: Element, defined: dict[str, DType]) -> None:
    for name, dtype in element.params:
        if defined.get(name) is not dtype:
            raise InvalidKernel(f"parameter {name} of the element is no definition of its dtype")
    values = dict(element.params)
    for let in element.body:
        _check_let(let, values)
        if let.name in values:
            raise InvalidKernel(f"{let.name} is defined twice")
        values[let.name] = let.dtype
    for index, (dtype, value) in enumerate(element.results):
        if _arg_dtype(value, values, f"result {index}", dtype) is not dtype:
            raise InvalidKernel(f"result {index} is not {dtype.value}")


def _check_let(let: Let, values: dict[str, DType]) -> None:
    spec = OPS[let.op]
    if spec.kind is not Kind.POINTWISE or spec.arity != len(let.args):
        raise InvalidKernel(f"{let.name} is no call of {let.op.value}")
    if not isinstance(let.attrs, spec.attrs):
        raise InvalidKernel(f"{let.name} has {type(let.attrs).__name__}")
    dtypes = [_arg_dtype(arg, values, let.name, let.operands) for arg in let.args]
    if let.op is Op.WHERE:
        dtypes[0] = DType.BOOL if isinstance(let.args[0], Const) else dtypes[0]
    try:
        result = spec.infer(tuple(TensorType(dtype, ()) for dtype in dtypes), let.attrs)
    except TypeRule as error:
        raise InvalidKernel(f"{let.name}: {error}") from None
    if result.dtype is not let.dtype:
        raise InvalidKernel(f"{let.name} is {result.dtype.value}, not {let.dtype.value}")


def _arg_dtype(arg: Arg, values: dict[str, DType], reader: str, told: DType) -> DType:
    """The dtype of a name; a constant has that which its reader tells."""
    if isinstance(arg, Const):
        return told
    if arg.text not in values:
        raise InvalidKernel(f"{reader} reads {arg.text} before it is defined")
    return values[arg.text]


def _check_stores(kernel: Kernel) -> None:
    outputs = _outputs(kernel)
    integers = _extent_names(kernel) | {loop.var for loop in kernel.loops}
    for store in kernel.stores:
        _check_store(store, kernel, outputs, integers)


def _outputs(kernel: Kernel) -> dict[str, DType]:
    return {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.written}


def _require_written(kernels: tuple[Kernel, ...]) -> None:
    """Every result is stored once by one of the kernels, which have the same buffers."""
    stored = [store.buffer for kernel in kernels for store in kernel.stores]
    _refuse_duplicates(stored)
    unwritten = set(_outputs(kernels[0])) - set(stored)
    if unwritten:
        raise InvalidKernel(f"nothing is stored to {min(unwritten)}")


def _check_store(
    store: Store, kernel: Kernel, outputs: dict[str, DType], integers: set[str]
) -> None:
    if store.buffer not in outputs:
        raise InvalidKernel(f"a store goes to {store.buffer}, which is no output")
    if not 0 <= store.result < len(kernel.element.results):
        raise InvalidKernel(f"the store to {store.buffer} has no result {store.result}")
    dtype = kernel.element.results[store.result][0]
    if not store.dtype is dtype is outputs[store.buffer]:
        raise InvalidKernel(f"the store to {store.buffer} is not of its dtype")
    _check_expr(store.address, integers, store.buffer)


def _refuse_duplicates(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidKernel(f"{name} is defined twice")
        seen.add(name)


def _extent_names(kernel: Kernel) -> set[str]:
    return {extent.name for extent in kernel.extents}


def _definition_dtypes(kernel: Kernel) -> dict[str, DType]:
    return {definition.name: _definition_dtype(definition) for definition in kernel.definitions}


def _definition_dtype(definition: Definition) -> DType:
    if isinstance(definition, Load | Multiplied | RowScalar):
        return definition.dtype
    return DType.I64 if isinstance(definition, Index | Gather) else DType.BOOL
