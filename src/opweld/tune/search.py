"""The search, in a child process: compiles a model under every schedule, builds, times, proposes.

Every candidate is an emitted file; its kernels are called as operators, on the arguments that the
model gave to those of the first file, which has the current choices. A pointwise class is timed by
its kernels alone. Of a product the other choice is other groups altogether, so whole forwards are
compared, less what they do beside the product.

    python -m opweld.tune.search REQUEST.json ANSWER.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from opweld import driver
from opweld.interface.doctor import require_build_tools
from opweld.ir.measured import Maker, Measured, PointwiseClass, Schedule, ShapeClass, Table, Tunable
from opweld.judge.process.environment import describe
from opweld.judge.values import Samples
from opweld.model_file import import_file
from opweld.options import Options
from opweld.process import worker
from opweld.process.builder import COMMAND as BUILDER
from opweld.process.builder import refusal
from opweld.process.lifetime import exit_without_teardown
from opweld.schedules import diff, line_of, read_text, with_rows
from opweld.tune.decide import Decision, decide
from opweld.tune.trials import (
    AGAIN_BUDGET_S,
    BUDGET_S,
    Stage,
    Stopwatch,
    copy_of,
    device_for,
    replay,
    stage,
    without,
)
from opweld.tune.values import Found, Outcome, Search

COPY = "copy"
NOT_RUN = "its kernel does not run on the model's own inputs"
OnEvent = Callable[[str, str], None]
Tried = tuple[tuple[ShapeClass, Schedule], ...]


def search(path: Path, options: Options, asked: Search, folder: Path, on_event: OnEvent) -> Found:
    """Measures the schedules of every class of the model; `folder` gets the candidates.

    Raises:
        UserError: the model file is bad, or this machine cannot build or run its kernels.
    """
    until_s = time.monotonic() + asked.limit_s
    table = driver.table_of(options)
    device = device_for(driver.target_of(options))
    ready = driver.capture_file(path, options, lambda name: on_event(name, ""))
    found = tuple(
        each for each in driver.tunables_of(ready, options, table) if each.shape.kind in asked.kinds
    )
    on_event("plan", f"{len(found)} classes")
    if not found:
        return _report(ready.target.measured_as, options, asked, device, (), ())
    require_build_tools(ready.target.name)
    files = [
        _written(folder / f"candidate{number}.py", tried, ready, options, table)
        for number, tried in enumerate(candidates(found))
    ]
    built, notes = _built(path, ready.target.name, files, on_event)
    bench = Bench(path, options, device, built, Stopwatch(device, until_s, len(found)))
    findings = []
    for tunable in found:
        on_event("measure", f"{', '.join(tunable.groups)}: {len(tunable.schedules)} schedules")
        findings.append((tunable, bench.decision(tunable)))
    return _report(ready.target.measured_as, options, asked, device, tuple(findings), notes)


Finding = tuple[Tunable, Decision]


def _report(
    target: str,
    options: Options,
    asked: Search,
    device: Any,
    findings: tuple[Finding, ...],
    notes: tuple[str, ...],
) -> Found:
    machine, today = describe(device), date.today().isoformat()

    def row(tunable: Tunable, decision: Decision) -> Measured:
        best, now = decision.again
        chosen = next(each for each in tunable.schedules if str(each) == best.schedule)
        origin = (machine.device_name, today, machine.torch, asked.command)
        return Measured(target, tunable.shape, chosen, best.us, tunable.current, now.us, *origin)

    rows = tuple(row(*finding) for finding in findings if finding[1].proposed)
    place = options.table
    before = read_text(place)
    after = with_rows(before, rows) if rows else before
    return Found(
        target=target,
        device=machine.device_name,
        torch=machine.torch,
        date=today,
        table=str(place),
        outcomes=tuple(_outcome(*finding) for finding in findings),
        notes=notes,
        rows=tuple(map(line_of, rows)),
        before=before,
        after=after,
        diff=diff(before, after, place.name),
    )


def _outcome(tunable: Tunable, decision: Decision) -> Outcome:
    return Outcome(
        kind=tunable.shape.kind,
        type=tunable.shape.type_text,
        shape=str(tunable.shape),
        groups=tunable.groups,
        current=str(tunable.current),
        trials=decision.trials,
        again=decision.again,
        proposed=decision.proposed,
        said=decision.said,
        copy_us=decision.copy_us,
    )


def candidates(found: tuple[Tunable, ...]) -> tuple[Tried, ...]:
    """What each file tries: the first nothing, each further one another schedule of all pointwise
    classes at once, or the other choice of one class of products.
    """
    pointwise = [each for each in found if isinstance(each.shape, PointwiseClass)]
    products = [each for each in found if not isinstance(each.shape, PointwiseClass)]
    most = max((len(each.schedules) for each in pointwise), default=0)
    rounds = [
        tuple((x.shape, x.schedules[turn]) for x in pointwise if turn < len(x.schedules))
        for turn in range(1, most)
    ]
    return ((), *rounds, *(((x.shape, s),) for x in products for s in x.schedules[1:]))


Groups = dict[ShapeClass, tuple[str, ...]]
"""The names of the groups of each class, as they are in one file."""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    tried: Tried
    groups: Groups


@dataclass(frozen=True, slots=True, eq=False)
class BuiltFile:
    """An emitted file with its kernels, and the schedules that it was made to try."""

    module: Any
    tried: Tried
    groups: Groups


Built = tuple[BuiltFile, ...]


def _written(
    path: Path, tried: Tried, ready: driver.Ready, options: Options, table: Table
) -> _File:
    trial = Table(table.rows, tried)
    path.write_text(driver.compile_ready(ready, options, trial).text, "utf-8")
    groups = {each.shape: each.groups for each in driver.tunables_of(ready, options, trial)}
    return _File(path, tried, groups)


def _built(
    model: Path, target: str, files: list[_File], on_event: OnEvent
) -> tuple[Built, tuple[str, ...]]:
    """Each file that can be built, and a note for each of the others.

    Raises:
        BuildFailed: not even the first one, which has the current choices, can be built.
    """
    on_event("build", f"{len(files)} files")
    with ThreadPoolExecutor(min(len(files), os.cpu_count() or 1, 16)) as pool:
        problems = list(pool.map(lambda file: _problem(file.path, model), files))
    if problems[0]:
        raise refusal(problems[0], model, target)
    built, notes = [], []
    for file, problem in zip(files, problems, strict=True):
        if problem:
            tried = ", ".join(f"{shape.kind} {schedule}" for shape, schedule in file.tried)
            notes.append(f"{tried}: {problem}")
            continue
        module = import_file(file.path, f"opweld_{file.path.stem}")
        built.append(BuiltFile(module, file.tried, file.groups))
    return tuple(built), tuple(notes)


def _problem(new: Path, model: Path) -> str | None:
    """Builds in a process of this one's session, which ends with it; why it failed, if it did."""
    answer = new.with_suffix(".json")
    done = subprocess.run(
        [*BUILDER, str(new), str(answer), str(model.resolve().parent)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0 and answer.exists():
        problem = json.loads(answer.read_text("utf-8"))["problem"]
        return str(problem) if problem else None
    said = (done.stderr + done.stdout).strip().splitlines() or ["nothing was printed"]
    return f"the process that builds it ended with status {done.returncode}: {said[-1][:300]}"


class Bench:
    """The built files on the device, and the clock that they are held against each other with."""

    def __init__(
        self, path: Path, options: Options, device: Any, built: Built, stopwatch: Stopwatch
    ) -> None:
        self._built, self._device, self._time = built, device, stopwatch
        self._arguments = (path, options.seed or 0, device, options.batch)
        self._first = stage(built[0].module, *self._arguments)

    def decision(self, tunable: Tunable) -> Decision:
        """Times the schedules of a class against each other."""
        pointwise = isinstance(tunable.shape, PointwiseClass)
        found = self._pointwise(tunable) if pointwise else self._product(tunable)
        self._time.next_class()
        return found or Decision((), (), False, NOT_RUN)

    def _pointwise(self, tunable: Tunable) -> Decision | None:
        launches = self._first.launches_of(tunable.groups)
        if not launches:
            return None
        actions = {
            str(schedule): replay(launches, file.module)
            for schedule, file in self._files(tunable).items()
        }
        samples = self._time({**actions, COPY: copy_of(launches, self._device)}, BUDGET_S)
        copy = samples.pop(COPY)

        def again(two: tuple[str, str]) -> Mapping[str, Samples]:
            return self._time({name: actions[name] for name in two}, AGAIN_BUDGET_S)

        decision = decide(str(tunable.current), samples, again)
        return replace(decision, copy_us=1e3 * copy.median)

    def _files(self, tunable: Tunable) -> dict[Schedule, BuiltFile]:
        """Those that have each schedule; one that could not be built is missing."""
        files = {tunable.current: self._built[0]}
        for file in self._built:
            files |= {schedule: file for shape, schedule in file.tried if shape == tunable.shape}
        return files

    def _product(self, tunable: Tunable) -> Decision | None:
        files = self._files(tunable)
        if Maker.OURS not in files:
            return None
        stages = {str(schedule): self._stage(file) for schedule, file in files.items()}
        ours = stages[str(Maker.OURS)]
        launches = ours.launches_of(files[Maker.OURS].groups[tunable.shape])
        if not launches:
            return None
        alone = self._time({"alone": replay(launches, ours.module)}, BUDGET_S)["alone"]
        forwards = {name: each.forward for name, each in stages.items()}
        samples = self._time(forwards, 2 * BUDGET_S)
        rest_ms = samples[str(Maker.OURS)].median - alone.median

        def again(two: tuple[str, str]) -> Mapping[str, Samples]:
            return without(rest_ms, self._time(forwards, AGAIN_BUDGET_S))

        return decide(str(tunable.current), without(rest_ms, samples), again)

    def _stage(self, file: BuiltFile) -> Stage:
        first = file is self._built[0]
        return self._first if first else stage(file.module, *self._arguments, self._first)


def _answer(request: Path, answer: Path) -> None:
    data = json.loads(request.read_text("utf-8"))
    path, options = worker.asked_of(data)
    asked = Search(**{**data["search"], "kinds": tuple(data["search"]["kinds"])})

    def work() -> dict[str, Any]:
        return {"found": search(path, options, asked, request.parent, _send).to_data()}

    worker.answer_with(answer, path, work)


def _send(name: str, message: str) -> None:
    worker.send_event(f"{name}\t{message}")


if __name__ == "__main__":
    _answer(Path(sys.argv[1]), Path(sys.argv[2]))
    exit_without_teardown()
