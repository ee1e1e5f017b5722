"""One phase of one unit, in the worker's process: whatever is not ours runs in children of it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from opweld import account, judge, pipeline
from opweld.compiled import Compiled, from_data
from opweld.delivery import default_output
from opweld.errors import JudgeFailed, OpweldError, UnsupportedTarget, UserError, Where
from opweld.judge.build.ahead import Ahead, architecture_of
from opweld.judge.build.locks import BUILDS
from opweld.judge.process.exit_status import kind_of
from opweld.judge.process.processes import MARK
from opweld.judge.process.spawn import Server
from opweld.judge.values import Judgement, Settings, to_plain
from opweld.options import GPUS, Options
from opweld.process.builder import build_in_child
from opweld.process.child import run_child
from opweld.process.worker import child_environment, compile_in_child
from opweld.suite import asking
from opweld.suite.spec import digests_of
from opweld.suite.values import (
    BUILD,
    CHECK,
    CRASHED,
    ERROR,
    FAILED,
    GPU_LOST,
    NODE_LOST,
    OPTIMIZE,
    PASSED,
    REFUSED,
    TIMED_OUT,
    TUNE,
    WORKER_LOST,
    Answer,
    Gpu,
    Task,
)
from opweld.tune import command as tuning

OPERATION = (sys.executable, "-P", "-m", "opweld.suite.worker.operation")
_COMPILED = "compiled.json"
_Given = TypeVar("_Given", Settings, Options)
_TIMES_OUT = "did not return within its time limit"


class MachineFault(Exception):
    """The machine's doing, so that the unit has no answer; `fault` is one of FAULTS."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(detail)
        self.fault, self.detail = fault, detail


@dataclass(slots=True)
class Bench:
    """What a worker has: the folder that one unit may build in at a time, its GPU, and a server
    that stays warm from unit to unit.
    """

    builds: Path
    gpu: Gpu | None
    tell: Callable[[str], None]
    server: Server | None = None

    def warm(self, settings: Settings) -> Server:
        sandbox = judge.sandbox_of(settings)
        if self.server is None or self.server.sandbox != sandbox:
            self.close()
            self.server = Server(sandbox=sandbox, writable=(self.builds,))
            self.tell(self.server.mark)
        return self.server

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None


def perform(task: Task, bench: Bench) -> Answer:
    """What the phase gives.

    Raises:
        MachineFault: the machine failed, and the unit is worth another attempt.
    """
    try:
        if digests_of(task.unit) != task.digests:
            raise UserError(
                "was changed while the suite ran",
                where=Where(task.unit.model),
                next_step="run the suite again",
            )
        return _work(task, bench)
    except pipeline.NotEquivalent as error:
        unit, new = Path(task.unit.model), default_output(Path(task.unit.model))
        return _of_judgement(unit, new, error.judgement)
    except JudgeFailed as error:
        return Answer(FAILED, type(error).__name__, str(error))
    except UnsupportedTarget as error:
        if bench.gpu is not None and task.phase != BUILD:  # it was there when the slot was made
            raise MachineFault(GPU_LOST, str(error)) from error
        return Answer(REFUSED, type(error).__name__, str(error))
    except UserError as error:
        if not all(Path(each).exists() for each in (task.unit.model, task.unit.new) if each):
            raise MachineFault(NODE_LOST, f"this node does not see the files: {error}") from error
        return Answer(REFUSED, type(error).__name__, str(error))
    except OpweldError as error:
        return Answer(ERROR, type(error).__name__, str(error))


def _work(task: Task, bench: Bench) -> Answer:
    if task.phase == BUILD:
        return _build(task, bench)
    if task.work.do == CHECK:
        return _check(task, bench)
    if task.work.do == OPTIMIZE:
        return _optimize(task, bench)
    if task.work.do == TUNE:
        return _tune(task)
    return _operation(task, bench)


def _build(task: Task, bench: Bench) -> Answer:
    """Leaves in the artefacts' folder what measuring need not build again.

    It says nothing of the unit: what fails here is tried again where it is measured.
    """
    folder = Path(task.artefacts)
    folder.mkdir(parents=True, exist_ok=True)
    if task.work.do == CHECK:
        _build_candidate(task, folder)
    else:
        _build_kernels(task, bench, folder)
    return Answer(PASSED)


def _build_candidate(task: Task, folder: Path) -> None:
    settings, gpu = _marked(asking.settings_in(task.work)), task.built_for
    environ = architecture_of(f"cuda:{gpu.index}") if gpu else {}
    job = (0, Path(task.unit.model), Path(task.unit.new or task.unit.model), folder)
    with Ahead(1, environ, settings.time_limit_s, judge.sandbox_of(settings)) as ahead:
        list(ahead.built(iter([job])))


def _build_kernels(task: Task, bench: Bench, folder: Path) -> None:
    """Those of the file that `optimize` makes, which is kept beside them."""
    options = _options(task, bench)
    compiled = compile_in_child(Path(task.unit.model), options)
    data = {"options": str(options), "compiled": compiled.to_data()}
    (folder / _COMPILED).write_text(json.dumps(data), "utf-8")
    with _building_in(folder):
        text = folder / "built_ahead.py"
        text.write_text(compiled.text, "utf-8")
        if compiled.fused:
            build_in_child(text, Path(task.unit.model), compiled.target, options)
        text.unlink()


def _check(task: Task, bench: Bench) -> Answer:
    unit = task.unit
    settings = replace(
        asking.settings_in(task.work), reference=unit.reference, candidate=unit.candidate
    )
    model, new = Path(unit.model), Path(unit.new or unit.model)
    if task.artefacts:  # a server of its own, which can write there and nowhere else
        return _of_judgement(model, new, judge.check(model, new, settings, builds=task.artefacts))
    server = bench.warm(settings)
    deaths = server.num_deaths
    judgement = judge.check(model, new, settings, server=server, builds=bench.builds)
    if server.num_deaths > deaths and not judgement.verdict.passed:
        raise MachineFault(WORKER_LOST, f"the judge's server ended: {judgement.verdict.reason}")
    return _of_judgement(model, new, judgement)


def _optimize(task: Task, bench: Bench) -> Answer:
    model, options = Path(task.unit.model), _options(task, bench)
    folder = Path(task.artefacts) if task.artefacts else bench.builds
    out = folder.parent / f"out-{task.key}" / default_output(model).name
    out.parent.mkdir()
    compile_file = functools.partial(_compiled, folder / _COMPILED)
    settings = pipeline.settings_of(options)
    try:
        with (
            _building_in(folder),
            Server(sandbox=options.chosen_sandbox, writable=(folder, out.parent)) as server,
        ):
            bench.tell(server.mark)
            judged = functools.partial(judge.check, server=server, builds=folder)
            delivery = pipeline.optimize(
                model, out, options, Silent(), compile_file, build_in_child, judged
            )
        text = out.read_text("utf-8")
    finally:
        shutil.rmtree(out.parent, ignore_errors=True)
    files = {default_output(model).name: text}
    notes = "; ".join(delivery.notes)
    told = to_plain(account.of_delivery(replace(delivery, out=default_output(model))))
    seed = delivery.judgement.seed if delivery.judgement else settings.seed
    return Answer(PASSED, "", notes, {**told, "seed": seed}, files)


def _compiled(
    kept: Path, path: Path, options: Options, on_stage: Callable[[str], None]
) -> Compiled:
    """What was compiled ahead, where it was for these very options."""
    if kept.is_file():
        data = json.loads(kept.read_text("utf-8"))
        if data["options"] == str(options):
            return from_data(data["compiled"])
    return compile_in_child(path, options, on_stage)


def _tune(task: Task) -> Answer:
    options, asked = _marked(asking.options_in(task.work)), asking.search_in(task.work)
    model = Path(task.unit.model)
    found = tuning.tune(model, options, asked)
    rows = f"{len(found.rows)} rows proposed" if found.rows else "no row is proposed"
    return Answer(PASSED, "", rows, tuning.account(model, asked, found, written=False))


def _operation(task: Task, bench: Bench) -> Answer:
    """A function of the user's own, in a process that is ended as a group at the time limit."""
    settings = _marked(asking.settings_in(task.work))
    folder = bench.builds
    request, answer = folder / "request.json", folder / "answer.json"
    request.write_text(json.dumps({**asking.of_unit(task), "parent": os.getpid()}), "utf-8")
    finished = run_child(
        [*OPERATION, str(request), str(answer)],
        time_limit_s=settings.time_limit_s,
        environ=child_environment(),
        sandbox=judge.sandbox_of(settings),
        writable=(folder,),
    )
    if finished.timed_out:
        return Answer(TIMED_OUT, TIMED_OUT, f"{task.work.do} {_TIMES_OUT}")
    if finished.status != 0 or not answer.exists():
        said = f": {finished.last_line[:300]}" if finished.last_line else ""
        return Answer(CRASHED, CRASHED, f"{task.work.do} {finished.ending()}{said}")
    given: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    verdict = PASSED if given.get("passed", True) else FAILED
    cause = "" if verdict == PASSED else str(given.get("cause", ""))
    return Answer(verdict, cause, str(given.get("reason", "")), given)


def _of_judgement(model: Path, new: Path, judgement: Judgement) -> Answer:
    verdict = judgement.verdict
    told = to_plain(account.of_judgement(model, new, judgement))
    if verdict.passed:
        return Answer(PASSED, "", verdict.reason, told)
    failures = verdict.failures
    if failures:
        return Answer(FAILED, failures[0].name, verdict.reason, told)
    kind = kind_of(verdict.reason)
    if kind == TIMED_OUT:
        return Answer(TIMED_OUT, kind, verdict.reason, told)
    return Answer(CRASHED if kind else FAILED, kind or "import or build", verdict.reason, told)


def _options(task: Task, bench: Bench) -> Options:
    """For the GPU of this slot by its name, so that it can be compiled for where none is seen."""
    options, gpu = _marked(asking.options_in(task.work)), bench.gpu or task.built_for
    if gpu is None or options.target not in ("auto", "cuda"):
        return options
    name = "".join(gpu.name.lower().split())
    known: Sequence[str] = [each for each in GPUS if each in name]
    return replace(options, target=known[0]) if known else options


def _marked(given: _Given) -> _Given:
    """The sandbox passes on the mark by which the worker's processes are found when it is gone."""
    return replace(given, pass_env=(*given.pass_env, MARK))


@contextlib.contextmanager
def _building_in(folder: Path) -> Iterator[None]:
    """Torch builds extensions there, in what is started meanwhile."""
    before = os.environ.get(BUILDS)
    os.environ[BUILDS] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[BUILDS]
        else:
            os.environ[BUILDS] = before


class Silent:
    """Follows an optimisation without a word; the account has it all."""

    def step(self, stage: str, message: str = "") -> None:
        pass

    def say(self, sentence: str) -> None:
        pass
