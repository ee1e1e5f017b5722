"""Accounts of runs that no machine made, for tests of what a page shows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.judge.judgements import ENVIRONMENT, TIMING

from opweld import account
from opweld.account import Account
from opweld.compiled import Compiled, PlanRow
from opweld.judge.values import (
    Check,
    Errors,
    Judgement,
    KernelTiming,
    LossCurves,
    OutputErrors,
    Samples,
    StepTiming,
    Verdict,
)
from opweld.pipeline import Delivery

LINES = {
    "m.py:3": "inner = x * torch.tanh(x)",
    "m.py:4": "return self.norm(inner) + x",
}
KERNEL = """// k1_mul_tanh: x f32[s0, 64] -> result f32[s0, 64]
float of(float x) {
  // m.py:3 inner = x * torch.tanh(x)
  return x * op::tanh(x);
}"""
SOURCE = "class Model:\n    def forward(self, x):\n        inner = x * torch.tanh(x)\n" + (
    "        return self.norm(inner) + x\n"
)
ROWS = (
    PlanRow(
        "k1_mul_tanh",
        "pointwise",
        ("mul", "tanh"),
        "one iteration space",
        flops=4_000_000_000,
        must_bytes=512_000_000,
        moved_bytes=512_000_000,
        places=("m.py:3",),
        module="act",
        inputs=("x",),
    ),
    PlanRow("sort", "library", ("aten.sort.default",), "no kernel sorts", number=1, reads=(0,)),
    PlanRow(
        "k2_mean_add",
        "reduction",
        ("mean", "add"),
        "rows of 64",
        flops=1_000_000_000,
        must_bytes=256_000_000,
        places=("m.py:4",),
        module="norm",
        number=2,
        reads=(0, 1),
        inputs=("x",),
        is_result=True,
    ),
    PlanRow("k1_mul_tanh", "pointwise", ("mul",), "one", variant="autocast bfloat16", number=3),
)


def errors(name: str, rms: float) -> OutputErrors:
    ours, eager = Errors(rms, 8 * rms), Errors(1.1 * rms, 9 * rms)
    return OutputErrors(name, "float32", "A", ours, eager, 1.0, 40.0, 0.3, 9.0)


OWN = Check(
    "own inputs",
    True,
    "grade A",
    grade="A",
    output="output[0]",
    dtype="float32",
    error_vs_f64=Errors(2e-8, 1.6e-7),
    eager_error_vs_f64=Errors(2.2e-8, 1.8e-7),
    max_ulp=40.0,
    ulp_p50=0.3,
    ulp_p99=9.0,
    outputs=(errors("output[0]", 2e-8), errors("output[1]", 5e-9)),
)
CHECKS = (
    OWN,
    Check("signature", True, "alike"),
    Check("training mode", True, "the original draws random numbers", skipped=True),
    Check("tiny values", True, "bit-equal to eager", grade="A"),
)
STEP = StepTiming(Samples(3.0, 2.9, 3.1, 9), None, Samples(1.5, 1.4, 1.6, 9))
JUDGEMENT = Judgement(
    Verdict(True, "A", CHECKS, "equivalent", precision="float32-faithful", scope="full"),
    replace(TIMING, product_tflops=300.0, step=STEP),
    (
        KernelTiming("k1_mul_tanh", 0.14, 512_000_000, 85.0),
        KernelTiming("k2_mean_add", 0.08, 256_000_000, 70.0, registers=40, spills=0),
    ),
    ENVIRONMENT,
    seed=3,
    curves=LossCurves(5, 200, 200, "float64", 2.0, 0.5, 1e-7, 1.25e-7, 0.8),
)
COMPILED = Compiled(
    "text",
    "sm_90a",
    ROWS,
    seconds={"plan": 0.5},
    kernel_texts={"k1_mul_tanh": KERNEL, "k2_mean_add": "float mean();"},
    line_texts=LINES,
)
DELIVERY = Delivery(Path("m.py"), Path("m_new.py"), COMPILED, JUDGEMENT, ("A note",))


def full() -> Account:
    """Everything that there can be to show."""
    made = account.of_delivery(DELIVERY, "opweld optimize m.py --seed 3")
    return replace(made, sources={"m.py": SOURCE}, date="2026-01-02T03:04:05+00:00")


def unjudged() -> Account:
    return account.of_delivery(replace(DELIVERY, judgement=None), "opweld optimize m.py --no-check")


def refused() -> Account:
    """Of a file of somebody's, which fails a check and was not timed."""
    bad = replace(OWN, name="batch of 3", passed=False, grade="F", first_bad_index=(1, 2))
    said = ("new.cu:3: error: x is no name",)
    verdict = Verdict(False, "F", (*CHECKS, bad), "batch of 3: output: wrong", said)
    judgement = Judgement(verdict, None, (), ENVIRONMENT, 3)
    return account.of_judgement(Path("m.py"), Path("n.py"), judgement, "opweld check m.py n.py")


def hostile(word: str) -> Account:
    """The full one with `word` in every text that a user, a compiler or a file may have set."""
    made = full()
    assert made.verdict and made.timing and made.environment
    checks = tuple(
        replace(check, name=word + check.name, detail=word, output=word, outputs=())
        for check in made.verdict.checks
    )
    unjudged = {"explanation": (word,), "unjudged": (word,)}
    return replace(
        made,
        model=f"{word}.py",
        model_new=word,
        device=word,
        target=word,
        environment=replace(made.environment, cpu=word, driver=word),
        verdict=replace(made.verdict, checks=checks, reason=word, **unjudged),
        timing=replace(made.timing, notes=(word,), protocol=word, device=word, limit_reason=word),
        timing_error=word,
        kernels=tuple(replace(each, name=word + each.name) for each in made.kernels),
        degenerate=word,
        curves=LossCurves(5, 9, 200, word, 2.0, 0.5, 1e-7, 1.25e-7, 0.8),
        plan=tuple(
            replace(
                row,
                name=word + row.name,
                ops=(word,),
                reason=word,
                module=word,
                places=(f"{word}.py:3",),
                inputs=(word,),
            )
            for row in made.plan
        ),
        seconds={word: 1.0},
        notes=(word,),
        rewritten=(word,),
        command=word,
        date=word,
        sources={f"{word}.py": f"{word}\n{SOURCE}\n# {word}"},
        kernel_texts={word + name: f"{text}\n{word}" for name, text in made.kernel_texts.items()},
        line_texts=dict.fromkeys(made.line_texts, word),
    )
