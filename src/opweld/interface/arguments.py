"""The arguments and options of the command line that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from opweld.judge.values import ALL_BASELINES, JUDGED_MODES, PRECISIONS, SCOPES
from opweld.options import ALGEBRAS, AUTOCASTS, DTYPES, MODES, TARGETS, option_help
from opweld.options import PRECISIONS as COMPILED_PRECISIONS
from opweld.sandbox import SANDBOXES


def choice(names: Sequence[str], flag: str, help: str, **more: Any) -> Any:
    """An option whose values are `names`: they stand in its help, and a shell completes them.

    Other values are refused later, in one sentence, and not by the parser.
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    shown = {"metavar": "|".join(names), **more}
    return typer.Option(flag, help=help, autocompletion=complete, **shown)


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
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="A file, or by a name without .py a package: a folder with kernels in files of "
        "their own. Default: MODEL_new.py beside it.",
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
Target = Annotated[str | None, choice(TARGETS, "--target", option_help("target"), metavar="NAME")]
Precision = Annotated[
    str | None, choice(COMPILED_PRECISIONS, "--precision", option_help("precision"))
]
Accepted = Annotated[
    str | None,
    choice(
        PRECISIONS,
        "--precision",
        "What is accepted: match, errors like eager's; or the errors of the original in tf32, "
        "fp16 or bf16.",
    ),
]
Mode = Annotated[str | None, choice(MODES, "--mode", option_help("mode"))]
Autocast = Annotated[list[str] | None, choice(AUTOCASTS, "--autocast", option_help("autocast"))]
Dtype = Annotated[
    list[str] | None, choice(DTYPES, "--dtype", option_help("dtype"), metavar="DTYPE")
]
Scope = Annotated[
    str | None,
    choice(
        SCOPES,
        "--scope",
        "What ModelNew must do: call, as the example call does, and what it refuses beyond "
        "that is listed; or full, all that the original does.",
    ),
]
Judged = Annotated[
    str | None,
    choice(
        JUDGED_MODES,
        "--mode",
        "Judge the example call in eval or training; own is how Model is made.",
    ),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option("--dynamic", metavar="INPUT:AXES", help=option_help("dynamic")),
]
Batch = Annotated[int | None, typer.Option("--batch", help=option_help("batch"))]
Seed = Annotated[int | None, typer.Option("--seed", help=option_help("seed"))]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help=option_help("time_limit_s"))]
Baselines = Annotated[
    str | None, choice(ALL_BASELINES, "--baselines", option_help("baselines"), metavar="NAMES")
]
Sandboxed = Annotated[str | None, choice(SANDBOXES, "--sandbox", option_help("sandbox"))]
PassEnv = Annotated[
    list[str] | None, typer.Option("--pass-env", metavar="NAME", help=option_help("pass_env"))
]
Thorough = Annotated[bool, typer.Option("--thorough", help=option_help("thorough"))]
All = Annotated[bool, typer.Option("--all", help=option_help("stop_at_first"))]
NoCheck = Annotated[bool, typer.Option("--no-check", help=option_help("check"))]
NoCache = Annotated[bool, typer.Option("--no-weight-cache", help=option_help("weight_cache"))]
Training = Annotated[bool, typer.Option("--training", help=option_help("training"))]
Budget = Annotated[
    float | None,
    typer.Option("--memory-budget", metavar="0..1", help=option_help("memory_budget")),
]
Step = Annotated[
    bool,
    typer.Option("--training", help="Train both sides, compare their losses, and time a step."),
]
Algebraic = Annotated[str | None, choice(ALGEBRAS, "--algebra", option_help("algebra"))]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - is standard output."),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report, a page for a browser."),
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show every check, kernel and reason.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
