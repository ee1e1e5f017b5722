"""The arguments and options of the command line that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.judge.values import PRECISIONS
from opweld.options import option_help

Model = Annotated[Path, typer.Argument(metavar="MODEL.py", help="The model file.")]
Either = Annotated[
    Path | None,
    typer.Argument(metavar="[MODEL.py]", show_default=False, help="The model file."),
]
Judgeable = Annotated[
    Path | None,
    typer.Argument(
        metavar="[MODEL_new.py]",
        show_default=False,
        help="A file or a package with ModelNew. Default: MODEL.py has both.",
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="FILE.py:f",
        help="In the place of a model file: a function; get_inputs() of its file makes arguments.",
    ),
]
Candidate = Annotated[
    str | None,
    typer.Option(
        "--candidate", metavar="FILE.py:g", help="The function that is judged against it."
    ),
]
Summary = Annotated[
    Path | None,
    typer.Option(
        "--summary",
        metavar="FILE",
        help="Append the verdict as Markdown. Default: the file in GITHUB_STEP_SUMMARY, if any.",
    ),
]
Target = Annotated[str | None, typer.Option("--target", help=option_help("target"))]
Precision = Annotated[str | None, typer.Option("--precision", help=option_help("precision"))]
Accepted = Annotated[
    str | None,
    typer.Option("--precision", help=f"What is accepted: {', '.join(PRECISIONS)}."),
]
Mode = Annotated[str | None, typer.Option("--mode", help=option_help("mode"))]
Autocast = Annotated[
    list[str] | None, typer.Option("--autocast", metavar="DTYPE", help=option_help("autocast"))
]
Dtype = Annotated[
    list[str] | None, typer.Option("--dtype", metavar="DTYPE", help=option_help("dtype"))
]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        help="What ModelNew must do: call, as the example call does, and what it refuses beyond "
        "that is listed; or full, all that the original does.",
    ),
]
Judged = Annotated[
    str | None,
    typer.Option(
        "--mode", help="Judge the example call in eval or training; own is how Model is made."
    ),
]
Batch = Annotated[int | None, typer.Option("--batch", help=option_help("batch"))]
Seed = Annotated[int | None, typer.Option("--seed", help=option_help("seed"))]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help=option_help("time_limit_s"))]
Baselines = Annotated[str | None, typer.Option("--baselines", help=option_help("baselines"))]
Sandboxed = Annotated[str | None, typer.Option("--sandbox", help=option_help("sandbox"))]
PassEnv = Annotated[
    list[str] | None, typer.Option("--pass-env", metavar="NAME", help=option_help("pass_env"))
]
Thorough = Annotated[bool, typer.Option("--thorough", help=option_help("thorough"))]
All = Annotated[bool, typer.Option("--all", help=option_help("stop_at_first"))]
NoCheck = Annotated[bool, typer.Option("--no-check", help=option_help("check"))]
NoCache = Annotated[bool, typer.Option("--no-weight-cache", help=option_help("weight_cache"))]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the account.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
