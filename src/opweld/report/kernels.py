"""The kernels of an account: their numbers and colours, their figures, and the roofline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from opweld.account import Account
from opweld.compiled import PlanRow
from opweld.judge.values import KernelTiming, Timing
from opweld.report.scale import LogScale, Tick, figure

NUM_COLOURS = 12
MOST_POINTS = 150  # those that take the most time
LEFT, RIGHT, TOP, BOTTOM = 64.0, 700.0, 16.0, 330.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel by its name: `number` stands for it in the plan, `colour` beside that."""

    number: int
    name: str
    kind: str
    ops: str
    reason: str
    modules: tuple[str, ...]
    rows: tuple[PlanRow, ...]
    timings: tuple[KernelTiming, ...]

    @property
    def colour(self) -> str:
        return f"k{(self.number - 1) % NUM_COLOURS}"

    @property
    def anchor(self) -> str:
        return f"kernel-{self.number}"

    def flops(self, timing: KernelTiming) -> int | None:
        """Of one such call; of calls of several sizes that share the kernel, found by their bytes.

        None where they are not known, or could be those of another call.
        """
        alike = {row.flops for row in self.rows if row.must_bytes == timing.bytes}
        every = {row.flops for row in self.rows} or {timing.flops}
        found = alike if len(alike) == 1 else every
        return next(iter(found)) if len(found) == 1 else None

    @property
    def ms(self) -> float | None:
        """Of all its calls in one forward; None where one was not timed."""
        each = [t.ms * t.calls for t in self.timings if t.ms is not None]
        return sum(each) if self.timings and len(each) == len(self.timings) else None


@dataclass(frozen=True, slots=True)
class Figures:
    """A line of the table: one kernel on operands of one shape."""

    kernel: Kernel
    calls: int
    ms: str
    megabytes: str
    intensity: str
    rate: str
    limit: str
    registers: str
    spills: str


@dataclass(frozen=True, slots=True)
class Point:
    kernel: Kernel
    x: float
    y: float
    radius: float
    label: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """Points on logarithmic axes of operations a byte and GFLOP/s, below what was measured."""

    points: tuple[Point, ...]
    slope: tuple[float, float, float, float]
    ceiling: float | None
    ceiling_from: float
    copy: str
    product: str
    label: tuple[float, float, float]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    left_out: tuple[str, ...]


def kernels_of(account: Account) -> tuple[Kernel, ...]:
    """In the order of the plan; those of a ModelNew without a plan as the judge saw them."""
    groups: dict[str, list[PlanRow]] = {}
    for row in account.plan:
        if row.is_kernel:
            groups.setdefault(row.name, []).append(row)
    for timing in account.kernels:
        groups.setdefault(timing.name, [])
    return tuple(
        _kernel(number, name, rows, account.kernels)
        for number, (name, rows) in enumerate(groups.items(), 1)
    )


def _kernel(
    number: int, name: str, rows: Sequence[PlanRow], timings: Sequence[KernelTiming]
) -> Kernel:
    own = tuple(timing for timing in timings if timing.name == name)
    first = rows[0] if rows else None
    kind = first.kind if first else next((t.kind for t in own if t.kind), "")
    return Kernel(
        number,
        name,
        kind,
        counted(first.ops) if first else "",
        first.reason if first else "",
        tuple(dict.fromkeys(row.module for row in rows if row.module)),
        tuple(rows),
        own,
    )


def counted(ops: Sequence[str]) -> str:
    """ "2 mul, tanh" of ("mul", "tanh", "mul"); a call of torch's by its short name."""
    counts = Counter(op.split(".")[1] if op.startswith("aten.") else op for op in ops)
    return ", ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())


def figures_of(kernels: Sequence[Kernel]) -> tuple[Figures, ...]:
    """The slowest first; a kernel that was not timed has a line, too."""
    found = [(timing, kernel) for kernel in kernels for timing in kernel.timings]
    found.sort(key=lambda pair: -((pair[0].ms or 0.0) * pair[0].calls))
    untimed = [_untimed(kernel) for kernel in kernels if not kernel.timings]
    return (*(_figures(timing, kernel) for timing, kernel in found), *untimed)


def _untimed(kernel: Kernel) -> Figures:
    first = kernel.rows[0]
    return Figures(
        kernel,
        len(kernel.rows),
        "–",
        figure(first.moved_bytes / 1e6) if first.moved_bytes else "–",
        "–",
        "–",
        "–",
        _count(first.registers),
        _count(first.spills),
    )


def _figures(timing: KernelTiming, kernel: Kernel) -> Figures:
    flops, num_bytes, ms = kernel.flops(timing), timing.bytes, timing.ms
    return Figures(
        kernel,
        timing.calls,
        figure(ms),
        figure(num_bytes / 1e6),
        figure(flops / num_bytes) if flops and num_bytes else "–",
        figure(flops / ms / 1e6) if flops and ms else "–",
        "–" if timing.limit_percent is None else f"{timing.limit_percent:.0f} %",
        _count(timing.registers),
        _count(timing.spills),
    )


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def roofline_of(kernels: Sequence[Kernel], timing: Timing) -> Roofline | None:
    """None where no kernel was timed whose operations are known."""
    every = [(t, k, k.flops(t)) for k in kernels for t in k.timings]
    drawn = [(t, k, flops) for t, k, flops in every if t.ms and t.ms > 0 and flops and t.bytes]
    drawn = sorted(drawn, key=lambda each: -(each[0].ms or 0.0) * each[0].calls)[:MOST_POINTS]
    if not drawn or not timing.copy_gbps > 0:
        return None
    intensity = [flops / t.bytes for t, _, flops in drawn]
    rates = [flops / (t.ms or 1.0) / 1e6 for t, _, flops in drawn]
    product = timing.product_tflops * 1e3 if timing.product_tflops else None
    knee = product / timing.copy_gbps if product else None
    xs = LogScale.around([*intensity, *([knee * 2] if knee else [])], LEFT, RIGHT)
    roof = timing.copy_gbps * 10.0**xs.high
    tallest = [product or min(roof, 20 * max(rates))]
    ys = LogScale.around([*rates, *tallest, timing.copy_gbps * min(intensity)], BOTTOM, TOP)
    total = sum((t.ms or 0.0) * t.calls for t, _, _ in drawn) or 1.0
    points = [
        Point(k, xs.at(x), ys.at(y), _radius((t.ms or 0.0) * t.calls / total), _label(t, k, x, y))
        for (t, k, _), x, y in zip(drawn, intensity, rates, strict=True)
    ]
    slope = _slope(timing.copy_gbps, xs, ys, knee)
    return Roofline(
        tuple(points),
        slope,
        ys.at(product) if product else None,
        xs.at(knee) if knee else LEFT,
        figure(timing.copy_gbps, "GB/s"),
        figure(timing.product_tflops, "TFLOP/s"),
        _along(slope),
        xs.ticks(),
        ys.ticks(),
        _left_out(kernels, sum(bool(t.ms and flops) for t, _, flops in every) - len(drawn)),
    )


def _radius(share: float) -> float:
    """An area that grows with the share of the time."""
    return round(8.0 + 12.0 * share**0.5, 1)


def _label(timing: KernelTiming, kernel: Kernel, intensity: float, rate: float) -> str:
    limit = f", {timing.limit_percent:.0f} % of its limit" if timing.limit_percent else ""
    where = f"{figure(intensity)} operations a byte, {figure(rate)} GFLOP/s"
    return f"{kernel.name}: {where}, {figure(timing.ms)} ms{limit}"


def _slope(
    gbps: float, xs: LogScale, ys: LogScale, knee: float | None
) -> tuple[float, float, float, float]:
    """The line of what a copy of the bytes allows, cut at the borders and at the ceiling."""
    first = max(10.0**xs.low, 10.0**ys.low / gbps)
    last = min(10.0**xs.high, 10.0**ys.high / gbps, *([knee] if knee else []))
    return xs.at(first), ys.at(first * gbps), xs.at(last), ys.at(last * gbps)


def _along(slope: tuple[float, float, float, float]) -> tuple[float, float, float]:
    """Where the label of a line stands, just above its middle, and by how many degrees it turns."""
    x1, y1, x2, y2 = slope
    angle = math.atan2(y2 - y1, x2 - x1)
    x, y = (x1 + x2) / 2 + 9 * math.sin(angle), (y1 + y2) / 2 - 9 * math.cos(angle)
    return round(x, 1), round(y, 1), round(math.degrees(angle), 1)


def _left_out(kernels: Sequence[Kernel], num_more: int) -> tuple[str, ...]:
    """Kernels without a point, with the reason."""
    found = [f"{num_more} more that take less time"] if num_more else []
    for kernel in kernels:
        counts = [kernel.flops(timing) for timing in kernel.timings]
        if not kernel.timings:
            found.append(f"{kernel.name}: it was not timed by itself")
        elif not any(counts) and any(row.flops for row in kernel.rows):
            found.append(f"{kernel.name}: its calls are of several sizes")
        elif not any(counts):
            found.append(f"{kernel.name}: no operations of it are counted")
        elif not any(timing.ms for timing in kernel.timings):
            found.append(f"{kernel.name}: its time was not measured")
    return tuple(found[:MOST_POINTS])
