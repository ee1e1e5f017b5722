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
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

from opweld import driver, worker
from opweld.builder import COMMAND as BUILDER
from opweld.builder import refusal
from opweld.doctor import require_build_tools
from opweld.ir.measured import Maker, Measured, PointwiseClass, Schedule, ShapeClass, Table, Tunable
from opweld.judge.environment import describe
from opweld.judge.values import Samples
from opweld.model_file import import_file
from opweld.options import Options
from opweld.schedules import OWN_TABLE, diff, line_of, read_text, with_rows
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
    found = driver.tunables_of(ready, options, table)
    found = tuple(each for each in found if each.shape.kind in asked.kinds)
    on_event("plan", f"{len(found)} classes")
    require_build_tools(ready.target.name)
    files = [
        _written(folder / f"candidate{number}.py", tried, ready, options, table)
        for number, tried in enumerate(candidates(found))
    ]
    built, notes = _built(path, ready.target.name, files, on_event)
    bench = _Bench(path, options, device, built, until_s, found, on_event)
    measured = [bench.outcome(tunable) for tunable in found]
    environment = describe(device)
    rows = tuple(
        Measured(
            ready.target.name,
            tunable.shape,
            chosen,
            outcome.again[0].us,
            tunable.current,
            outcome.again[1].us,
            environment.device_name,
            date.today().isoformat(),
            environment.torch,
            asked.command,
        )
        for tunable, (outcome, chosen) in zip(found, measured, strict=True)
        if outcome.proposed
    )
    place = Path(options.schedules) if options.schedules else OWN_TABLE
    before = read_text(place)
    after = with_rows(before, rows) if rows else before
    return Found(
        target=ready.target.name,
        device=environment.device_name,
        torch=environment.torch,
        date=date.today().isoformat(),
        table=str(place),
        outcomes=tuple(outcome for outcome, _ in measured),
        notes=notes,
        rows=tuple(map(line_of, rows)),
        before=before,
        after=after,
        diff=diff(before, after, place.name),
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


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    tried: Tried
    groups: dict[ShapeClass, tuple[str, ...]]
    """By class, as they are called in this file."""


def _written(
    path: Path, tried: Tried, ready: driver.Ready, options: Options, table: Table
) -> _File:
    trial = Table(table.rows, tried)
    path.write_text(driver.compile_ready(ready, options, trial).text, "utf-8")
    groups = {each.shape: each.groups for each in driver.tunables_of(ready, options, trial)}
    return _File(path, tried, groups)


Built = tuple[tuple[_File, ModuleType], ...]


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
    kept = [file for file, problem in zip(files, problems, strict=True) if not problem]
    notes = [
        f"{', '.join(f'{shape.kind} {schedule}' for shape, schedule in file.tried)}: {problem}"
        for file, problem in zip(files, problems, strict=True)
        if problem
    ]
    names = [f"opweld_candidate{number}" for number in range(len(kept))]
    modules = [import_file(file.path, name) for file, name in zip(kept, names, strict=True)]
    return tuple(zip(kept, modules, strict=True)), tuple(notes)


def _problem(new: Path, model: Path) -> str | None:
    """Builds in a process of this one's session, which ends with it; why it failed, if it did."""
    answer = new.with_suffix(".json")
    paths = [str(model.resolve().parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [*BUILDER, str(new), str(answer)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
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


class _Bench:
    """The built files, and the clock that they are held against each other with."""

    def __init__(
        self,
        path: Path,
        options: Options,
        device: Any,
        built: Built,
        until_s: float,
        found: tuple[Tunable, ...],
        on_event: OnEvent,
    ) -> None:
        self._built, self._device, self._on_event = built, device, on_event
        self._arguments = (path, options.seed or 0, device, options.batch)
        self._time = Stopwatch(device, until_s, len(found))
        self._first = stage(built[0][1], *self._arguments)

    def outcome(self, tunable: Tunable) -> tuple[Outcome, Schedule]:
        """What was found for a class, and the schedule that is the fastest."""
        names = ", ".join(tunable.groups)
        self._on_event("measure", f"{names}: {len(tunable.schedules)} schedules")
        pointwise = isinstance(tunable.shape, PointwiseClass)
        timed = self._pointwise(tunable) if pointwise else self._product(tunable)
        self._time.next_class()
        decision, copy_us = timed or (Decision((), (), False, NOT_RUN), None)
        shape, by_text = tunable.shape, {str(each): each for each in tunable.schedules}
        best = by_text[decision.trials[0].schedule] if decision.trials else tunable.current
        outcome = Outcome(
            kind=shape.kind,
            type=shape.type_text,
            shape=str(shape),
            groups=tunable.groups,
            current=str(tunable.current),
            trials=decision.trials,
            again=decision.again,
            proposed=decision.proposed,
            said=decision.said,
            copy_us=copy_us,
        )
        return outcome, best

    def _pointwise(self, tunable: Tunable) -> tuple[Decision, float | None] | None:
        launches = self._first.launches_of(tunable.groups)
        if not launches:
            return None
        actions = {
            str(schedule): replay(launches, module)
            for schedule in tunable.schedules
            if (module := self._with(tunable, schedule)[1]) is not None
        }
        copied = {COPY: copy_of(launches, self._device)}
        samples = self._time({**actions, **copied}, BUDGET_S)
        copy_us = 1e3 * samples.pop(COPY).median

        def again(two: tuple[str, str]) -> Mapping[str, Samples]:
            return self._time({name: actions[name] for name in two}, AGAIN_BUDGET_S)

        return decide(str(tunable.current), samples, again), copy_us

    def _with(self, tunable: Tunable, schedule: Schedule) -> tuple[_File | None, ModuleType | None]:
        """The file that has this schedule for the class; none where it could not be built."""
        if schedule == tunable.current:
            return self._built[0]
        wanted = (tunable.shape, schedule)
        return next((each for each in self._built if wanted in each[0].tried), (None, None))

    def _product(self, tunable: Tunable) -> tuple[Decision, float | None] | None:
        stages: dict[str, Stage] = {}
        groups: tuple[str, ...] = ()
        for schedule in tunable.schedules:
            file, module = self._with(tunable, schedule)
            if file is None or module is None:
                continue
            is_current = schedule == tunable.current
            stages[str(schedule)] = (
                self._first if is_current else stage(module, *self._arguments, self._first)
            )
            if schedule is Maker.OURS:
                groups = file.groups[tunable.shape]
        ours = stages.get(str(Maker.OURS))
        launches = ours.launches_of(groups) if ours else ()
        if ours is None or not launches:
            return None
        actions = {name: each.forward for name, each in stages.items()}
        alone = self._time({"alone": replay(launches, ours.module)}, BUDGET_S)["alone"].median
        samples = self._time(actions, 2 * BUDGET_S)
        rest_ms = samples[str(Maker.OURS)].median - alone

        def again(two: tuple[str, str]) -> Mapping[str, Samples]:
            return without(rest_ms, self._time(actions, AGAIN_BUDGET_S))

        return decide(str(tunable.current), without(rest_ms, samples), again), None


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
