"""The command line: `opweld optimize | check | plan | tune | suite | report | package | doctor`.

Exit codes: 0 done and equivalent; 1 not equivalent, crashed or timed out while judged; 2 bad input
or usage; 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from opweld import __version__, account
from opweld.delivery import default_output
from opweld.interface import doctor
from opweld.interface.arguments import (
    Accepted,
    Algebraic,
    All,
    Autocast,
    Baselines,
    Batch,
    Budget,
    Candidate,
    Debug,
    Dtype,
    Dynamic,
    Either,
    Html,
    Json,
    Judgeable,
    Judged,
    Mode,
    Model,
    NoCache,
    NoCheck,
    Out,
    PassEnv,
    Precision,
    Reference,
    Sandboxed,
    Scope,
    Seed,
    Step,
    Summary,
    Target,
    Thorough,
    TimeLimit,
    Training,
    Verbose,
    choice,
)
from opweld.interface.asked import Asked
from opweld.interface.choices import accepted, begin, examples, judged_mode, scope_of
from opweld.interface.commands import suite
from opweld.interface.commands.package_command import package_command
from opweld.interface.commands.report_command import report_command
from opweld.interface.exits import exit_with, say
from opweld.interface.pairs import SAME_FILE, Pair, pair_of
from opweld.interface.progress import JUDGED, Progress
from opweld.interface.show import show_delivery, show_judgement
from opweld.interface.summary import append_summary, markdown, summary_file
from opweld.judge import check as judge_pair
from opweld.judge import started
from opweld.judge.values import Judgement, Settings
from opweld.model_file import read_source
from opweld.options import Options, from_environment, listed
from opweld.pipeline import NotEquivalent, optimize, settings_of
from opweld.process.builder import build_in_child
from opweld.process.worker import compile_in_child
from opweld.tune import command as tuning
from opweld.tune import show as tuned
from opweld.tune.values import KINDS, Search

STAGES = ("graph", "plan", "kernel", "source")

app = typer.Typer(
    name="opweld",
    help="Fuse a PyTorch model's operators into readable kernels, and prove the result.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"opweld {__version__}")
        raise typer.Exit


@app.command(
    "optimize",
    short_help="Write a faster ModelNew, verified and measured.",
    epilog=examples(
        "optimize gelu.py", "optimize gelu.py -o out/gelu_new.py --target sm_80 --no-check"
    ),
)
def optimize_command(
    model: Model,
    out: Out = None,
    target: Target = None,
    precision: Precision = None,
    mode: Mode = None,
    autocast: Autocast = None,
    dtype: Dtype = None,
    dynamic: Dynamic = None,
    batch: Batch = None,
    seed: Seed = None,
    no_check: NoCheck = False,
    no_weight_cache: NoCache = False,
    training: Training = False,
    memory_budget: Budget = None,
    algebra: Algebraic = None,
    baselines: Baselines = None,
    thorough: Thorough = False,
    go_on: All = False,
    json: Json = None,
    html: Html = None,
    verbose: Verbose = False,
    time_limit: TimeLimit = None,
    sandbox: Sandboxed = None,
    pass_env: PassEnv = None,
    debug: Debug = False,
) -> None:
    """Write a faster ModelNew for MODEL.py, verified and measured."""

    def run() -> int:
        options = from_environment(
            target=target,
            precision=precision,
            mode=mode,
            autocast=listed(autocast),
            dtype=listed(dtype),
            dynamic=tuple(dynamic or ()),
            batch=batch,
            seed=seed,
            check=not no_check,
            weight_cache=not no_weight_cache,
            training=training,
            memory_budget=memory_budget,
            algebra=algebra,
            baselines=baselines,
            thorough=thorough,
            stop_at_first=not go_on,
            time_limit_s=time_limit,
            sandbox=sandbox,
            pass_env=listed(pass_env),
        )
        begin(options)
        read_source(model)
        asked = Asked(json, html)
        return _optimize(model, out or default_output(model), options, asked, verbose)

    exit_with(run, debug)


def _optimize(model: Path, out: Path, options: Options, asked: Asked, verbose: bool) -> int:
    """Writes the faster file and shows how it was judged; the exit code."""
    try:
        with (
            Progress(Console(stderr=True), verbose=verbose) as progress,
            started(settings_of(options) if options.check else None) as server,
        ):
            judge = functools.partial(judge_pair, server=server)
            delivery = optimize(
                model, out, options, progress, compile_in_child, build_in_child, judge
            )
    except NotEquivalent as error:
        show_judgement(error.judgement, (model, out), asked.console, verbose)
        asked.write(account.of_judgement(model, out, error.judgement, _again(error.judgement)))
        raise
    show_delivery(delivery, asked.console, verbose)
    asked.write(account.of_delivery(delivery, _again(delivery.judgement)))
    return 0


def _again(judgement: Judgement | None) -> str:
    """The command that does this again."""
    return account.command_of(sys.argv[1:], os.environ, judgement.seed if judgement else None)


@app.command(
    "check",
    short_help="Judge ModelNew against Model, and time both.",
    epilog=examples(
        "check gelu.py gelu_new.py --all", "check gelu.py mine.py --precision tf32 --json -"
    ),
)
def check_command(
    model: Either = None,
    new: Judgeable = None,
    reference: Reference = None,
    candidate: Candidate = None,
    target: Target = None,
    scope: Scope = None,
    precision: Accepted = None,
    mode: Judged = None,
    training: Step = False,
    batch: Batch = None,
    seed: Seed = None,
    baselines: Baselines = None,
    thorough: Thorough = False,
    go_on: All = False,
    json: Json = None,
    html: Html = None,
    summary: Summary = None,
    verbose: Verbose = False,
    time_limit: TimeLimit = None,
    sandbox: Sandboxed = None,
    pass_env: PassEnv = None,
    debug: Debug = False,
) -> None:
    """Judge any pair: is ModelNew equivalent to Model, and how fast is it?

    A pair is two files, one file with both, or two functions.
    """

    def run() -> int:
        options = from_environment(
            target=target,
            mode=judged_mode(mode),
            training=training,
            batch=batch,
            seed=seed,
            baselines=baselines,
            thorough=thorough,
            stop_at_first=not go_on,
            time_limit_s=time_limit,
            sandbox=sandbox,
            pass_env=listed(pass_env),
        )
        begin(options)
        pair = pair_of(model, new, reference, candidate)
        if pair.is_one_file:
            say(f"opweld: note: {SAME_FILE}")
        asked = Asked(json, html)
        settings = replace(
            settings_of(options),
            precision=accepted(precision or "match"),
            scope=scope_of(scope),
            reference=pair.reference,
            candidate=pair.candidate,
        )
        return _check(pair, settings, asked, summary_file(summary), verbose)

    exit_with(run, debug)


def _check(
    pair: Pair, settings: Settings, asked: Asked, summary: Path | None, verbose: bool
) -> int:
    """Judges the pair and shows the judgement; the exit code."""
    with Progress(Console(stderr=True), JUDGED, verbose) as progress:
        judgement = judge_pair(
            pair.model,
            pair.new,
            settings,
            lambda event: progress.step(event.stage, event.message),
        )
    show_judgement(judgement, pair.names, asked.console, verbose)
    asked.write(account.of_judgement(*pair.names, judgement, _again(judgement)))
    if summary:
        append_summary(summary, markdown(judgement, pair.names))
    return judgement.exit_code


@app.command(
    "plan",
    short_help="Print a stage of the compilation.",
    epilog=examples("plan gelu.py", "plan gelu.py --stage source --target sm_90a"),
)
def plan_command(
    model: Model,
    stage: Annotated[str, choice(STAGES, "--stage", "What to print.")] = "plan",
    target: Target = None,
    mode: Mode = None,
    autocast: Autocast = None,
    dtype: Dtype = None,
    dynamic: Dynamic = None,
    batch: Batch = None,
    training: Training = False,
    memory_budget: Budget = None,
    algebra: Algebraic = None,
    time_limit: TimeLimit = None,
    sandbox: Sandboxed = None,
    pass_env: PassEnv = None,
    debug: Debug = False,
) -> None:
    """Print one stage of the compilation: the graph, the plan, the kernels or the source."""
    if stage not in STAGES:
        raise typer.BadParameter(f"{stage!r} is not one of {', '.join(STAGES)}")

    def run() -> int:
        options = from_environment(
            target=target,
            mode=mode,
            autocast=listed(autocast),
            dtype=listed(dtype),
            dynamic=tuple(dynamic or ()),
            batch=batch,
            training=training,
            memory_budget=memory_budget,
            counts_kept=training and stage == "plan",
            algebra=algebra,
            check=False,
            time_limit_s=time_limit,
            sandbox=sandbox,
            pass_env=listed(pass_env),
        )
        begin(options)
        stages = compile_in_child(model, options).stages
        # Where ModelNew is the original there is nothing but a plan that says why.
        print(stages.get(stage, stages["plan"]).rstrip("\n"))
        if "kept" in stages:
            print(stages["kept"])
        return 0

    exit_with(run, debug)


@app.command(
    "tune",
    short_help="Measure other schedules for a model.",
    epilog=examples("tune gelu.py --limit 300"),
)
def tune_command(
    model: Model,
    target: Annotated[
        str | None, choice(("auto", "cpu", "cuda"), "--target", "What to measure.")
    ] = None,
    kind: Annotated[str | None, choice(KINDS, "--kind", "Only schedules of one kind.")] = None,
    batch: Batch = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the proposed rows into the table.")
    ] = False,
    json: Json = None,
    limit: Annotated[
        float, typer.Option("--limit", metavar="SECONDS", help="What the whole search may take.")
    ] = 600.0,
    sandbox: Sandboxed = None,
    pass_env: PassEnv = None,
    debug: Debug = False,
) -> None:
    """Measure the schedules that MODEL.py could have, and propose rows for the table of them."""

    def run() -> int:
        options = from_environment(
            target=target,
            batch=batch,
            check=False,
            time_limit_s=limit,
            sandbox=sandbox,
            pass_env=listed(pass_env),
        )
        begin(options)
        asked = Search(tuning.kinds_of(kind), limit, _command(model, target, kind, batch))
        read_source(model)
        asked_json = Asked(json)
        if write:
            tuning.check_table(options)
        with Progress(Console(stderr=True), verbose=True) as progress:
            found = tuning.tune(model, options, asked, progress.step)
        written = write and bool(found.rows)
        if written:
            tuning.apply(found)
        tuned.show(found, written, asked_json.console)
        asked_json.write_data(tuning.account(model, asked, found, written))
        return 0

    exit_with(run, debug)


def _command(model: Path, target: str | None, kind: str | None, batch: int | None) -> str:
    """The command that measures the same again, as the table's rows name it."""
    given = (("--target", target), ("--kind", kind), ("--batch", batch))
    words = [str(word) for name, value in given if value is not None for word in (name, value)]
    return shlex.join(["opweld", "tune", str(model), *words])


app.command(
    "report",
    short_help="Make a page of the account of a run.",
    epilog=examples("report gelu.json", "report gelu.json --html out/gelu.html"),
)(report_command)


app.command(
    "package",
    short_help="Make a wheel that needs no compiler.",
    epilog=examples("package gelu_new.py", "package gelu_new.py --arch sm_90a,sm_80 -o dist"),
)(package_command)
app.add_typer(suite.app, name="suite")


@app.command(
    "doctor",
    short_help="Say what this machine has and what it lacks.",
    epilog=examples("doctor --json"),
)
def doctor_command(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Say what this machine has, what is missing, and what to do about it."""

    def run() -> int:
        findings = doctor.examine()
        print(doctor.as_json(findings)) if json else doctor.show(findings, Console())
        return 0

    exit_with(run, debug)


def main() -> None:
    app(prog_name="opweld")
