"""The child: some model files down the whole line, each judged; one JSON line an outcome.

    python -m tests.fuzz.batch REQUEST.json

The request names a folder, the models in it, those of them that are captured under autocast too,
the target, and the seeds to judge with. Lines go to the file descriptor in OPWELD_EVENTS: which
model is worked on, and what became of it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.fuzz.builds import Order, build_together, noted_orders
from tests.fuzz.outcome import BESIDE_NAN, BY_CHANCE, Outcome
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.compiled import Compiled
from opweld.driver import compile_file
from opweld.errors import UserError
from opweld.judge.inputs.gradient_cases import NAME as GRADIENTS
from opweld.judge.process.side import Side
from opweld.judge.session import Request, judge
from opweld.judge.values import Check, Event, Judgement, Settings
from opweld.model_file import import_file
from opweld.options import AUTOCASTS, Options
from opweld.process.builder import NO_KERNELS

JUDGE_LIMIT_S = 60.0
NOT_CALLED = "kernels not called"


class Quiet:
    """A judge's listener that hears nothing."""

    def phase(self, who: str, what: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def partial(self, judgement: Judgement) -> None: ...


class Batch:
    """The models of one request, stage by stage."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.folder = Path(request["folder"])
        self.target = request["target"]
        self.seeds: list[int] = request["seeds"]
        self.autocast: list[str] = request["autocast"]
        self.done: dict[str, Outcome] = {}
        self.compiled: dict[str, Compiled] = {}
        self.seconds: dict[str, dict[str, float]] = {name: {} for name in request["models"]}

    def run(self) -> None:
        for name in self.seconds:
            self._timed("compile", name, self._compile)
        self._build([name for name, account in self.compiled.items() if account.fused])
        for name in self.compiled:
            if name not in self.done:
                self._timed("judge", name, self._judge)

    def _timed(self, stage: str, name: str, work: Any) -> None:
        say({"begin": name, "stage": stage})
        start = time.monotonic()
        outcome = work(name)
        self.seconds[name][stage] = time.monotonic() - start
        if outcome is not None:
            self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        outcome = replace(outcome, seconds=self.seconds[outcome.name])
        self.done[outcome.name] = outcome
        say({"outcome": outcome.to_data()})

    def _compile(self, name: str) -> Outcome | None:
        states = AUTOCASTS if name in self.autocast else ()
        options = Options(target=self.target, mode="both", autocast=states)
        try:
            compiled = compile_file(self.folder / f"{name}.py", options)
        except UserError as error:
            return Outcome(name, "refused", str(error))
        except Exception as error:
            return Outcome(name, f"compiler raises {type(error).__name__}", place_of(error))
        self.compiled[name] = compiled
        self._new(name).write_text(compiled.text, "utf-8")
        return None

    def _build(self, names: list[str]) -> None:
        """Together; where that fails, one by one, to know whose text it is."""
        if not names:
            return
        say({"begin": "", "stage": "build"})
        start = time.monotonic()
        orders = noted_orders(self._new(name) for name in names)
        if not self._built(orders, "together"):
            for index, order in enumerate(orders):
                self._built([order], f"alone_{index}")
        for name in names:
            self.seconds[name]["build"] = (time.monotonic() - start) / len(names)

    def _built(self, orders: list[Order], folder: str) -> bool:
        try:
            build_together(orders, self.folder / folder)
        except Exception as error:
            if len(orders) == 1:
                print(str(error)[-3000:], file=sys.stderr)
            return False
        return True

    def _judge(self, name: str) -> Outcome:
        compiled = self.compiled[name]
        judgements = []
        for seed in self.seeds:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    judgements.append(self._judged(name, seed))
                except UserError as error:
                    return Outcome(name, "judge refuses", str(error))
            if problem := problem_of(warned):
                return Outcome(name, "no kernels", problem)
            if judgements[-1].verdict.passed:
                break
        return outcome_of(self.folder, name, compiled, judgements)

    def _judged(self, name: str, seed: int) -> Judgement:
        device = "cpu" if self.target == "cpu" else "cuda"
        settings = Settings(
            scope="full",
            device=device,
            seed=seed,
            measure=False,
            time_limit_s=JUDGE_LIMIT_S,
            mode="eval",  # training is one of the checks
            autocast=AUTOCASTS if name in self.autocast else (),
        )
        model, new = self.folder / f"{name}.py", self._new(name)
        return judge(Request(str(model), str(new), settings, seed), Quiet(), Side())

    def _new(self, name: str) -> Path:
        return self.folder / f"{name}_new.py"


def outcome_of(folder: Path, name: str, compiled: Compiled, judgements: list[Judgement]) -> Outcome:
    """A fault fails with every seed; what passes with one of them was chance, and is said."""
    last = judgements[-1]
    main = [row for row in compiled.fused if not row.variant]
    kind, detail = "passed", ""
    if not last.verdict.passed:
        kind, detail = fault_of(last)
        if kind == f"check: {GRADIENTS}" and meets_nan(folder / f"{name}.py"):
            kind = BESIDE_NAN
    elif len(judgements) > 1:
        kind, detail = BY_CHANCE, judgements[0].verdict.reason
    elif main and not last.kernel_calls:
        kind, detail = NOT_CALLED, "ModelNew ran the original on the model's own inputs"
    return Outcome(
        name,
        kind,
        detail,
        kernels=len(main),
        ops=tuple(op for row in main for op in row.ops),
        left=tuple(row.ops[0] if row.ops else row.name for row in left_rows(compiled)),
        grade=last.verdict.grade,
        weak=any("weak:" in check.detail for check in last.verdict.checks),
    )


def problem_of(warned: list[warnings.WarningMessage]) -> str | None:
    """Why the emitted file has no kernels, in its own words."""
    said = [str(each.message).partition(NO_KERNELS)[2] for each in warned]
    return next((reason for reason in said if reason), None)


def meets_nan(model: Path) -> bool:
    """Whether a value of the model on its own inputs is NaN, where a derivative means nothing."""
    program = import_file(model, f"checked_{model.stem}")
    with torch.no_grad(), WatchNan() as watch:
        program.Model().eval()(*program.get_inputs())
    return watch.seen


class WatchNan(TorchDispatchMode):
    """Notes whether any operation gives a NaN."""

    seen = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = function(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(given):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.seen = self.seen or bool((leaf != leaf).any())
        return given


def left_rows(compiled: Compiled) -> list[Any]:
    return [row for row in compiled.main_rows if row.kind == "library"]


def fault_of(judgement: Judgement) -> tuple[str, str]:
    """How it fails, and what the judge says of it."""
    failed: list[Check] = [check for check in judgement.verdict.checks if not check.passed]
    if not failed:
        return "ModelNew fails", judgement.verdict.reason
    names = ", ".join(check.name for check in failed)
    return f"check: {failed[0].name}", f"{failed[0].detail} [{names}]"


def place_of(error: BaseException) -> str:
    """The innermost frame of ours, and the message."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/opweld/" in f.filename]
    place = ""
    if frames:
        last = frames[-1]
        place = f"{last.filename.rpartition('/opweld/')[2]}:{last.name}: "
    return f"{place}{' '.join(str(error).split())[:300]}"


def say(event: dict[str, Any]) -> None:
    os.write(int(os.environ["OPWELD_EVENTS"]), (json.dumps(event) + "\n").encode())


def main() -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    Batch(json.loads(Path(sys.argv[1]).read_text("utf-8"))).run()


if __name__ == "__main__":
    main()
