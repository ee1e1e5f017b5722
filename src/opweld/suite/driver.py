"""The driver: takes units as there is room for them, and writes down each as it ends.

It keeps in memory what runs or waits for a slot, and nothing of what has ended.
"""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from opweld.errors import OpweldError, UserError
from opweld.suite import asking
from opweld.suite.artefacts import Artefacts
from opweld.suite.engines import Engine
from opweld.suite.placing import MAX_ATTEMPTS, Placing, Waiting
from opweld.suite.recording import Recorder
from opweld.suite.spec import Spec, digests_of, key_of
from opweld.suite.store import Store
from opweld.suite.values import (
    BUILD,
    INTERRUPTED,
    LOST,
    MEASURE,
    PASSED,
    REFUSED,
    Answer,
    Outcome,
    Task,
    Unit,
    Work,
)

_WAIT_S = 0.25
_UNITS_AT_ONCE = 256
# So many faults one after the other, of whatever units and slots, are not the units' doing.
_FAULTS_IN_A_ROW = 10


@dataclass(slots=True)
class Progress:
    """How far a run is: units that ended in it by verdict, and what else a person wants to know.

    `kept` ended in an earlier run, `kept_failing` of them without passing; `repeated` are in the
    suite more than once, `causes` says why units did not pass.
    """

    total: int | None
    kept: int = 0
    kept_failing: int = 0
    repeated: int = 0
    running: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def ended(self) -> int:
        """In this run."""
        return self.verdicts.total()

    @property
    def done(self) -> int:
        """Units that need not be done any more, for whatever reason."""
        return self.ended + self.kept + self.repeated

    @property
    def all_passed(self) -> bool:
        """Those of earlier runs, too."""
        return self.ended == self.verdicts[PASSED] and not self.kept_failing

    @property
    def per_minute(self) -> float:
        return 60 * self.ended / self.seconds if self.seconds else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at the rate so far; None where nothing can be said."""
        if self.total is None or not self.ended:
            return None
        return max(0, self.total - self.done) * self.seconds / self.ended


@dataclass(slots=True)
class _Live:
    """A unit between its first task and its result."""

    unit: Unit
    digests: dict[str, str]
    attempts: int = 0
    failed_on: set[str] = field(default_factory=set)
    build_seconds: float = 0.0


class NoDevices(OpweldError):
    """Every device of the suite was set aside; what has ended is in the store."""


Follow = Callable[[Progress], None]
Say = Callable[[str], None]


def drive(
    spec: Spec,
    work: Work,
    engine: Engine,
    store: Store,
    *,
    text: str = "",
    output: Path | None = None,
    follow: Follow = lambda progress: None,
    say: Say = lambda sentence: None,
) -> Progress:
    """Does all units of `spec` that the store has no result of; each result is in it, on the disk,
    before the next is looked at. Ending it in any way loses only what was running.

    `text` is what the store calls the suite, `output` the folder for files that units give (beside
    their models without one). `follow` gets the progress again and again, `say` what is worth a
    line.

    Raises:
        NoDevices: no device is left.
        KeyboardInterrupt: nothing runs any more.
    """
    return _Driver(spec, work, engine, store, text, output, say).run(follow)


class _Driver:
    def __init__(
        self,
        spec: Spec,
        work: Work,
        engine: Engine,
        store: Store,
        text: str,
        output: Path | None,
        say: Say,
    ) -> None:
        self._units, self._work, self._engine, self._store = spec.units, work, engine, store
        self._say, self._digest = say, asking.digest_of(work)
        self._placing = Placing(engine.slots())
        self._builds = work.builds_ahead and self._placing.builds
        self._live: dict[str, _Live] = {}
        self._tasks: dict[str, Task] = {}
        self._numbers = itertools.count()
        self._faults_in_a_row = 0
        self.progress = Progress(spec.total)
        run = store.add_run(
            spec=text,
            do=work.do,
            asked=work.asked,
            engine=engine.name,
            host=platform.node(),
            versions=asking.versions(),
            total=spec.total,
        )
        self._recorder = Recorder(store, run, work, output)
        self._artefacts = Artefacts(store.path.with_name(f"{store.path.name}.work"))

    def run(self, follow: Follow) -> Progress:
        start = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self._artefacts.close)
            stack.callback(self._engine.close)
            more = True
            while more or not self._placing.is_idle:
                more = more and self._take_units()
                self._submit()
                wait_s = _WAIT_S if self._tasks else 0.0
                for outcome in self._engine.finished(wait_s):
                    self._end(outcome)
                self.progress.seconds = time.monotonic() - start
                self.progress.running = self._placing.num_busy
                follow(self.progress)
        return self.progress

    def _take_units(self) -> bool:
        """As many as there is room for, and not so many that those which run wait to be heard;
        whether there may be more of them.
        """
        phase = BUILD if self._builds else MEASURE
        for _ in range(_UNITS_AT_ONCE):
            if min(self._placing.room(phase), self._placing.room(MEASURE)) <= 0:
                break
            unit = next(self._units, None)
            if unit is None:
                return False
            self._begin(unit)
        return True

    def _begin(self, unit: Unit) -> None:
        refusal = None
        model, new = (each and os.path.abspath(each) for each in (unit.model, unit.new))
        unit = replace(unit, model=model, new=new)
        try:
            digests = digests_of(unit)
        except UserError as error:
            digests, refusal = {}, error
        key = key_of(unit, digests, self._digest)
        if key in self._live:
            self.progress.repeated += 1
            return
        found = self._store.result_of(key)
        if found is not None:
            if found.run == self._recorder.run:
                self.progress.repeated += 1
            else:
                self.progress.kept += 1
                self.progress.kept_failing += found.verdict != PASSED
            return
        live = _Live(unit, digests)
        self._live[key] = live
        if refusal is not None:
            self._record(key, Answer(REFUSED, type(refusal).__name__, str(refusal)), None)
        elif not self._placing.fits_any(unit):
            self._record(key, _unplaced(unit), None)
        else:
            self._queue(key, BUILD if self._builds else MEASURE)

    def _queue(self, key: str, phase: str, first: bool = False) -> None:
        live = self._live[key]
        fitting = (slot.gpu for slot in self._placing.measuring_for(live.unit) if slot.gpu)
        task = Task(
            f"{key}-{next(self._numbers)}",
            key,
            phase,
            live.unit,
            self._work,
            live.digests,
            str(self._artefacts.folder(key)) if phase == BUILD else "",
            next(fitting, None) if phase == BUILD else None,
        )
        self._placing.add(task, live.failed_on, first)

    def _submit(self) -> None:
        for waiting in list(self._placing.unplaceable()):
            self._give_up(waiting)
        for waiting, slot in list(self._placing.ready()):
            task = waiting.task
            if task.phase == MEASURE and self._builds:
                folder = self._artefacts.lay_out(task.key)
                task = replace(task, artefacts=str(folder) if folder else "")
            self._tasks[task.id] = task
            self._engine.submit(task, slot)

    def _give_up(self, waiting: Waiting) -> None:
        """Of a task that no slot that is left can take."""
        if not self._placing.measuring:
            reasons = "; ".join(f"{slot}: {why}" for slot, why in self._placing.aside.items())
            raise NoDevices(
                f"no device is left: {reasons}",
                next_step="see to them, and run the same command again for the rest",
            )
        self._record(waiting.task.key, _unplaced(waiting.task.unit), None)

    def _end(self, outcome: Outcome) -> None:
        task = self._tasks.pop(outcome.task, None)
        if task is None:
            return  # of a task that has come back before
        if why := self._placing.ended(outcome):
            slot = self._placing.slot(outcome.slot)
            self._engine.set_aside(slot, outcome.node)
            self._say(f"{slot.id} is set aside: {why}")
        elif outcome.bad_gpu and outcome.node:
            self._engine.set_aside(self._placing.slot(outcome.slot), outcome.node)
            self._say(f"{outcome.node} is left out: {outcome.bad_gpu}")
        live = self._live[task.key]
        if outcome.fault == INTERRUPTED:
            self._queue(task.key, task.phase, first=True)
        elif outcome.fault or outcome.answer is None:
            self._fault(task, live, outcome)
        elif task.phase == BUILD:
            self._built(task, live, outcome.answer, outcome.seconds)
        else:
            self._faults_in_a_row = 0
            live.attempts += 1
            self._record(task.key, outcome.answer, outcome)

    def _built(self, task: Task, live: _Live, answer: Answer, seconds: float) -> None:
        """What could not be built ahead is built where it is measured, which has the say."""
        live.build_seconds = seconds
        if answer.verdict == PASSED:
            self._artefacts.publish(task.key)
        self._queue(task.key, MEASURE)

    def _fault(self, task: Task, live: _Live, outcome: Outcome) -> None:
        """The machine's doing: once more, elsewhere where that can be, but not for ever."""
        live.attempts += 1
        live.failed_on.add(outcome.slot)
        self.progress.faults[outcome.fault] += 1
        self._recorder.fault(task.key, outcome)
        self._faults_in_a_row += 1
        if self._faults_in_a_row >= _FAULTS_IN_A_ROW + MAX_ATTEMPTS * self._placing.num_slots:
            raise NoDevices(
                f"nothing works here: {self._faults_in_a_row} attempts one after the other ended "
                f"by {outcome.fault}: {outcome.detail}",
                next_step="see to it, and run the same command again for the rest",
            )
        if live.attempts < MAX_ATTEMPTS:
            self._queue(task.key, MEASURE)
            return
        reason = f"{live.attempts} attempts, the last: {outcome.detail}"
        self._record(task.key, Answer(LOST, outcome.fault, reason), outcome)

    def _record(self, key: str, answer: Answer, outcome: Outcome | None) -> None:
        live = self._live.pop(key)
        self._artefacts.drop(key)
        answer = self._recorder.result(
            key, live.unit, live.digests, answer, outcome, max(1, live.attempts), live.build_seconds
        )
        self.progress.verdicts[answer.verdict] += 1
        if answer.cause:
            self.progress.causes[answer.verdict, answer.cause] += 1


def _unplaced(unit: Unit) -> Answer:
    asked = [unit.gpu or "a GPU", *([f"{unit.gpu_memory_gb:g} GB"] if unit.gpu_memory_gb else [])]
    return Answer(REFUSED, "no such device", f"no device here is {' with '.join(asked)}")
