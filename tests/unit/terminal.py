"""Results as the terminal shows them: what the golden texts in tests/golden/terminal are of."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from tests.judge.judgements import ENVIRONMENT, TIMING

from opweld.compiled import Compiled, PlanRow
from opweld.interface.show import show_delivery, show_judgement
from opweld.judge.values import (
    Check,
    Comparison,
    Errors,
    Judgement,
    KernelTiming,
    Samples,
    Verdict,
)
from opweld.pipeline import Delivery

OWN = Check(
    "own inputs",
    True,
    "grade A",
    grade="A",
    error_vs_f64=Errors(1.5e-8, 2.5e-7),
    eager_error_vs_f64=Errors(1.25e-8, 2.25e-7),
)
SKIPPED = Check("training mode", True, "the original draws random numbers", skipped=True)
JUDGEMENT = Judgement(
    Verdict(True, "A", (OWN, SKIPPED), "equivalent"),
    TIMING,
    (KernelTiming("k1_mul_tanh", 0.15, 512_000_000, 80.0, 1),),
    ENVIRONMENT,
    seed=3,
)
ROWS = (
    PlanRow(
        "k1_mul_tanh",
        "pointwise",
        ("mul", "mul", "tanh"),
        "one input",
        places=("m.py:13", "m.py:14", "m.py:20"),
        module="act",
    ),
    PlanRow("sort", "library", ("aten.sort.default",), "no kernel sorts"),
    PlanRow("k1_mul_tanh_bfloat16", "pointwise", ("mul",), "x", variant="autocast bfloat16"),
)
DELIVERY = Delivery(
    Path("m.py"), Path("out/m_new.py"), Compiled("", "sm_90a", ROWS), JUDGEMENT, ("A note",)
)


def slower() -> Delivery:
    """Right, and slower than eager: never green."""
    timing = replace(
        TIMING,
        opweld_ms=Samples(1.5, 1.4, 1.6, 50),
        vs_eager=Comparison(1.25, 1.2, 1.3, 0.0, 50, slower=True),
    )
    return replace(DELIVERY, judgement=replace(JUDGEMENT, timing=timing))


def busy() -> Delivery:
    """Measured on a machine that others use: times, but no ratio of them."""
    eager, ours = Samples(1.2, 0.2, 9.0, 50), Samples(1e-6, 1e-6, 0.5, 50)
    timing = replace(TIMING, eager_ms=eager, opweld_ms=ours)
    return replace(DELIVERY, judgement=replace(JUDGEMENT, timing=timing))


def many() -> Delivery:
    """A network of many kernels, with long names and everything that there can be to say."""
    rows = tuple(
        PlanRow(
            f"k{k}_convolution_batch_norm_relu_and_more_{k}",
            "convolution",
            ("aten.convolution.default", "mul", "add", "relu", *("mul",) * k),
            "a reason",
            flops=10**9,
            places=tuple(f"network.py:{line}" for line in range(10, 200, 3)),
            module=f"layers.{k % 20}.block",
        )
        for k in range(40)
    )
    left = tuple(
        PlanRow("call", "library", (f"aten.call{k}.default",), f"reason {k}") for k in range(9)
    )
    kernels = tuple(KernelTiming(row.name, 0.01 * k, 10**6, 50.0) for k, row in enumerate(rows))
    verdict = replace(JUDGEMENT.verdict, unjudged=("zeros would pass " + "for a reason " * 40,))
    timing = replace(TIMING, notes=tuple(f"note {k} " + "word " * 60 for k in range(9)))
    judgement = replace(JUDGEMENT, verdict=verdict, timing=timing, kernels=kernels)
    return replace(DELIVERY, compiled=Compiled("", "sm_90a", (*rows, *left)), judgement=judgement)


def wrong(num: int = 1) -> Judgement:
    """Of a file of somebody else's, which fails `num` checks; a compiler has something to say."""
    bad = tuple(
        replace(OWN, name=f"batch of {k}", passed=False, grade="F", detail="output: wrong" * k)
        for k in range(1, num + 1)
    )
    said = tuple(f"new.cu:{100 + k}: error: [/bold] is no name" for k in range(3 * num))
    bad = (replace(bad[0], first_bad_index=(3, 4)), *bad[1:])
    verdict = Verdict(False, "F", (OWN, *bad), "batch of 1: output: wrong", said)
    return Judgement(verdict, None, (), ENVIRONMENT, 3)


def long() -> Judgement:
    """With sentences longer than there is room for."""
    found = wrong(30)
    bad = tuple(replace(check, detail="a long word " * 40) for check in found.verdict.checks)
    said = tuple(f"new.cu({k}): error: {'a word ' * 40}" for k in range(30))
    reason = "batch of 1: " + "a long word " * 40
    return replace(
        found, verdict=replace(found.verdict, checks=bad, explanation=said, reason=reason)
    )


NAMES = Path("m.py"), Path("mine.py")
CASES: dict[str, Callable[[Console], None]] = {
    "optimized": lambda console: show_delivery(DELIVERY, console),
    "slower": lambda console: show_delivery(slower(), console),
    "busy": lambda console: show_delivery(busy(), console),
    "many": lambda console: show_delivery(many(), console),
    "unverified": lambda console: show_delivery(replace(DELIVERY, judgement=None), console),
    "checked": lambda console: show_judgement(JUDGEMENT, NAMES, console),
    "wrong": lambda console: show_judgement(wrong(), NAMES, console),
    "long_wrong": lambda console: show_judgement(long(), NAMES, console),
    "many_wrong": lambda console: show_judgement(wrong(30), NAMES, console),
}


def shown(case: str, width: int = 80, terminal: bool = True, colours: str | None = None) -> str:
    """The text on a terminal of `width` columns, or in a file."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=terminal,
        width=width,
        color_system=colours,  # type: ignore[arg-type]
        legacy_windows=False,
    )
    CASES[case](console)
    return stream.getvalue()
