"""CUDA kernels run on the CPU by the emulation of the tests, and what it says of a changed text."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.mutation.text import Region, without_comments
from tests.emulation import reductions, scans
from tests.emulation.emulate import ORDERS, EmulationFault, OrderDependence, build
from tests.scan_graphs import GRAPHS
from tests.unit.plan.plans import BATCH, Make

from opweld.render.cuda.texts import cuda_text

Array = np.ndarray
Run = Callable[..., list[Array]]
# Where a text's own kernels begin, behind the library's part that they use.
_KERNELS = re.compile(r"^// k\d+_", re.MULTILINE)
ANY_CALL: tuple[dict[str, Any], ...] = (
    *({"order": order} for order in ORDERS),
    *({"aligned": False}, {"variant": "strided"}, {"wide": True}),
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A group as CUDA text, operands for it, and how near float64 its results have to be."""

    text: str
    run: Callable[[str, dict[str, Any]], list[Array]]
    exact: Callable[[], list[Array]]
    calls: tuple[dict[str, Any], ...]
    rtol: float
    atol: float

    def require_right(self, text: str) -> None:
        """Runs a text in every call, and in every order of its threads.

        Raises:
            EmulationFault: an access, a barrier or a race that is none of a kernel's.
            AssertionError: a result that is too far from float64.
        """
        wanted, first = self.exact(), None
        for call in self.calls:
            results = self.run(text, call)
            for mine, theirs in zip(results, wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, self.rtol, self.atol, err_msg=str(call))
            bits = [result.tobytes() for result in results]
            if first is None:
                first = bits
            elif "order" in call and bits != first:
                raise OrderDependence(f"threads run {call['order']} give other results")


def kernels() -> dict[str, Kernel]:
    """One of each way in which threads share their work."""
    return {f"cuda_{name}": kernel for name, kernel in _kernels()}


def _kernels() -> Iterator[tuple[str, Kernel]]:
    m = Make()
    x = values(5, 1028)
    yield "softmax", of_reduction("softmax", (m.softmax(m.x("x", BATCH, 1028), 1),), {"x": x})
    m = Make()
    feeds = {"x": values(9, 40) + 3, "weight": values(40, seed=1)}
    norm = m.mul(m.standardised(m.x("x", BATCH, 40), 1), m.x("weight", 40))
    yield "layer_norm", of_reduction("layer_norm", (norm,), feeds, rtol=2e-5, atol=3e-6)
    m = Make()
    norm = m.relu(m.standardised(m.x("x", 5, BATCH, 12), 0, 2))
    feeds = {"x": values(5, 5, 12)}
    yield "batch_norm", of_reduction("batch_norm", (norm,), feeds, rtol=2e-5, atol=3e-6)
    m = Make()
    total = m.mul(m.reduced("sum", m.x("x", BATCH, 2052), 1), 0.5)
    feeds = {"x": values(9, 2052)}
    yield "sum_in_pieces", of_reduction("pieces", (total,), feeds, pieces=3, atol=5e-5)
    m = Make()
    places = tuple(m.reduced(op, m.x("x", BATCH, 23, 14), 1) for op in ("amax", "argmax"))
    yield "places", of_reduction("places", places, {"x": values(6, 23, 14)}, rtol=0)
    m = Make()
    columns = m.reduced("sum", m.x("x", BATCH, 65, 36), 1)
    yield "columns", of_reduction("columns", (columns,), {"x": values(3, 65, 36)}, atol=2e-5)
    for name, sizes in (("odd", {"s0": 3, "s1": 1027}), ("across", {"s0": 2, "s1": 65, "s2": 9})):
        yield f"scan_{name}", of_scan(name, sizes)


def of_reduction(
    name: str, outputs: Any, feeds: Mapping[str, Array], pieces: int = 0, **tolerance: float
) -> Kernel:
    sizes = {"s0": feeds["x"].shape[0]}
    case = reductions.case(name, *outputs, cut=bool(pieces))
    calls = tuple({**call, "pieces": pieces or 1} for call in ANY_CALL)
    text = cuda_text((case.reduction,))
    return _kernel(reductions, case, text, feeds, sizes, calls, **tolerance)


def of_scan(name: str, sizes: dict[str, int]) -> Kernel:
    case = scans.case(name, *GRAPHS[name](Make()))
    width = sizes["s2"] * 4 if "s2" in sizes else 0
    feeds = {"x": values(sizes["s0"], sizes["s1"], *([width] if width else []))}
    if width:
        feeds["row"] = values(width, seed=1)
    text = cuda_text((case.scan,))
    return _kernel(scans, case, text, feeds, sizes, ANY_CALL, rtol=1e-6, atol=4e-5)


def _kernel(
    of: Any,
    case: Any,
    text: str,
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int],
    calls: tuple[dict[str, Any], ...],
    rtol: float = 2e-6,
    atol: float = 0.0,
) -> Kernel:
    def run(text: str, call: dict[str, Any]) -> list[Array]:
        strided = call.get("variant") == "strided"
        given = {n: of.with_gaps(a) for n, a in feeds.items()} if strided else feeds
        found: list[Array] = of.run(text, case, given, sizes, **call)
        return found

    @cache
    def exact() -> list[Array]:
        found: list[Array] = of.exact(case, feeds, sizes)
        return found

    return Kernel(text, run, exact, calls, rtol, atol)


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def regions(text: str) -> tuple[Region, ...]:
    """The library's part of a CUDA text, and the kernels' own."""
    found = _KERNELS.search(text)
    assert found is not None, "a text has kernels"
    code, start = without_comments(text), found.start()
    return Region("library", 0, code[:start]), Region("kernels", start, code[start:])


def judge(kernel: Kernel, text: str) -> dict[str, Any]:
    """What finds a mutant of a kernel: a fault, two orders that differ, or the distance."""
    try:
        kernel.require_right(text)
    except OrderDependence as error:
        return {"outcome": "caught", "by": "orders of threads", "reason": str(error)[:300]}
    except EmulationFault as error:
        return {"outcome": "caught", "by": "emulator", "reason": str(error)[:300]}
    except AssertionError as error:
        return {"outcome": "caught", "by": "float64", "reason": str(error).strip()[:300]}
    return {"outcome": "survived"}


def code_of(text: str) -> bytes | None:
    """The instructions and constants of the emulated program; None where it does not compile."""
    try:
        program = build(text)
    except RuntimeError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for section in (".text", ".rodata"):
            out = Path(folder, "section")
            command = ["objcopy", "-O", "binary", f"--only-section={section}", str(program)]
            subprocess.run([*command, str(out)], check=True)
            parts.append(out.read_bytes())
        return b"\0".join(parts)
