"""`opweld suite`: many pairs or models, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from opweld.errors import UserError
from opweld.interface.arguments import (
    Accepted,
    Algebraic,
    All,
    Autocast,
    Baselines,
    Batch,
    Budget,
    Debug,
    Dtype,
    Mode,
    NoCache,
    NoCheck,
    PassEnv,
    Sandboxed,
    Scope,
    Seed,
    Target,
    Thorough,
    TimeLimit,
    Training,
)
from opweld.interface.choices import accepted, begin, examples, judged_mode, scope_of
from opweld.interface.commands.suite_arguments import (
    Address,
    Builders,
    Do,
    Engine,
    Folder,
    Jobs,
    Kind,
    Limit,
    NoMeasure,
    Slurm,
    Spec,
    StoreFile,
    StoreOption,
)
from opweld.interface.commands.suite_progress import SuiteProgress
from opweld.interface.exits import exit_with, say
from opweld.options import Options, from_environment, listed
from opweld.pipeline import settings_of
from opweld.suite import asking
from opweld.suite.engines.named import LOCAL, Where
from opweld.suite.reading import compare as comparing
from opweld.suite.reading import export as exporting
from opweld.suite.reading import page, status
from opweld.suite.run import run_suite
from opweld.suite.values import CHECK, OPTIMIZE, TUNE, Work
from opweld.tune.command import kinds_of
from opweld.tune.values import Search

_HELP = ("--help", "-h")


class _RunByDefault(TyperGroup):
    """`opweld suite SPEC` is `opweld suite run SPEC`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *_HELP):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Check, optimize or tune many pairs or models, and keep the results in a store. "
    "`opweld suite SPEC` is short for `opweld suite run SPEC`.",
    short_help="Do many pairs or models, on all devices.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    "run",
    short_help="Do all that the store has no result of yet.",
    epilog=examples(
        "suite pairs/",
        "suite pairs.jsonl --store monday.sqlite --no-measure --jobs 8",
        "suite 'zoo/*.py' --do optimize --engine ray --address auto -o out/",
    ),
)
def run_command(
    context: typer.Context,
    spec: Spec,
    do: Do = CHECK,
    store: StoreOption = None,
    engine: Engine = LOCAL,
    address: Address = None,
    slurm: Slurm = None,
    jobs: Jobs = None,
    builders: Builders = None,
    output: Folder = None,
    no_measure: NoMeasure = False,
    target: Target = None,
    precision: Accepted = None,
    scope: Scope = None,
    mode: Mode = None,
    autocast: Autocast = None,
    dtype: Dtype = None,
    training: Training = False,
    memory_budget: Budget = None,
    batch: Batch = None,
    seed: Seed = None,
    algebra: Algebraic = None,
    no_check: NoCheck = False,
    no_weight_cache: NoCache = False,
    baselines: Baselines = None,
    thorough: Thorough = False,
    go_on: All = False,
    kind: Kind = None,
    limit: Limit = 600.0,
    time_limit: TimeLimit = None,
    sandbox: Sandboxed = None,
    pass_env: PassEnv = None,
    debug: Debug = False,
) -> None:
    """Do all units of SPEC that the store has no result of yet.

    It may be stopped at any time and started again by the same command: what has ended stays. The
    exit code is 0 where all passed, and 1 otherwise.
    """

    def run() -> int:
        options = _options(context.params)
        begin(options)
        work = _work(context.params, options)
        device = settings_of(options).device
        where = Where(engine, device, jobs, builders, address, _pairs(slurm))
        return _run(spec, work, store or default_store(spec, do), where, output)

    exit_with(run, debug, "what has ended is in the store; the same command does the rest")


def _options(given: Mapping[str, Any]) -> Options:
    """The options among the command's parameters."""
    do = given["do"]
    as_named = (
        "target",
        "training",
        "memory_budget",
        "batch",
        "seed",
        "algebra",
        "baselines",
        "thorough",
        "sandbox",
    )
    lists = ("autocast", "dtype", "pass_env")
    chosen: dict[str, Any] = {name: given[name] for name in as_named}
    chosen |= {name: listed(given[name]) for name in lists}
    return from_environment(
        **chosen,
        mode=given["mode"] if do == OPTIMIZE else judged_mode(given["mode"]),
        check=not given["no_check"] and do != TUNE,
        weight_cache=not given["no_weight_cache"],
        stop_at_first=not given["go_on"],
        time_limit_s=given["limit"] if do == TUNE else given["time_limit"],
    )


def _work(given: Mapping[str, Any], options: Options) -> Work:
    do = given["do"]
    ahead = given["builders"] != 0 and options.target != "cpu"
    if do == OPTIMIZE:
        return asking.of_optimize(options, ahead)
    if do == TUNE:
        return asking.of_tune(options, Search(kinds_of(given["kind"]), given["limit"]))
    settings = replace(
        settings_of(options),
        precision=accepted(given["precision"] or "match"),
        scope=scope_of(given["scope"]),
        measure=not given["no_measure"],
    )
    return asking.of_check(settings, ahead) if do == CHECK else asking.of_function(do, settings)


def _run(spec: str, work: Work, store: Path, where: Where, output: Path | None) -> int:
    with SuiteProgress(Console(stderr=True)) as shown:
        progress = run_suite(
            spec, work, store, where=where, output=output, follow=shown.follow, say=shown.say
        )
    print(store)
    return 0 if progress.all_passed else 1


def default_store(spec: str, do: str) -> Path:
    """`pairs/` becomes `pairs.check.sqlite` in the current folder."""
    stem = Path(spec).stem.strip("*?[]. ") or Path(spec).parent.name or "suite"
    return Path(f"{stem}.{do.replace(':', '.')}.sqlite")


def _pairs(given: list[str] | None) -> dict[str, str]:
    for text in given or ():
        if "=" not in text:
            raise UserError(f"--slurm cannot be {text!r}", next_step="write KEY=VALUE")
    return dict(text.split("=", 1) for text in given or ())


@app.command(
    "status",
    short_help="Say how far a suite is.",
    epilog=examples("suite status pairs.check.sqlite"),
)
def status_command(store: StoreFile, debug: Debug = False) -> None:
    """Say how many units have ended and how, also while the suite runs."""

    def run() -> int:
        for line in status.lines(store):
            print(line)
        return 0

    exit_with(run, debug)


@app.command(
    "report",
    short_help="Write an HTML page of all results.",
    epilog=examples("suite report pairs.check.sqlite -o pairs.html"),
)
def report_command(
    store: StoreFile,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: STORE's name, .html."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write one HTML page with all results and filters; it needs no network."""

    def run() -> int:
        out = output or store.with_suffix(".html")
        page.write(store, out)
        print(out)
        return 0

    exit_with(run, debug)


@app.command(
    "export",
    short_help="Write the results as Parquet, CSV or JSON lines.",
    epilog=examples("suite export pairs.check.sqlite pairs.parquet"),
)
def export_command(
    store: StoreFile,
    output: Annotated[
        Path, typer.Argument(metavar="FILE", help="By its ending: .parquet, .csv, .jsonl.")
    ],
    debug: Debug = False,
) -> None:
    """Write the results as a table, a row for each unit."""

    def run() -> int:
        number = exporting.export(store, output)
        say(f"opweld: {number} rows")
        print(output)
        return 0

    exit_with(run, debug)


@app.command(
    "compare",
    short_help="Say what became wrong or slower from one store to another.",
    epilog=examples("suite compare monday.sqlite tuesday.sqlite"),
)
def compare_command(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A store.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one, of the same units.")],
    debug: Debug = False,
) -> None:
    """Say what became wrong or slower; the exit code is 1 if anything did.

    Times are compared as ratios to eager, each of one process on one device.
    """

    def run() -> int:
        found = comparing.compare(before, after)
        for line in comparing.lines(found):
            print(line)
        return 1 if found.is_worse else 0

    exit_with(run, debug)
