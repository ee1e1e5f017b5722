"""The arguments and options of `opweld suite` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.interface.arguments import choice
from opweld.suite.engines.named import ENGINES
from opweld.suite.values import OPERATIONS
from opweld.tune.values import KINDS

StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="The store of a suite.")]
Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="A folder, a glob, or a file of JSON lines or Parquet that names pairs or models.",
    ),
]
Do = Annotated[
    str, choice(OPERATIONS, "--do", "What is done with each; or module:function of your own.")
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="Default: SPEC's name, .DO.sqlite, here."),
]
Engine = Annotated[str, choice(ENGINES, "--engine", "Who runs it.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster to join, such as auto. Default: one of this machine is started.",
    ),
]
Slurm = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="KEY=VALUE",
        help="What jobs of Slurm are submitted with, such as partition=gpu; may be repeated.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help="Units at once. Default: one for each GPU; of untimed ones one for each core.",
    ),
]
Builders = Annotated[
    int | None,
    typer.Option(
        "--builders",
        min=0,
        help="Processes that build ahead. Default: two for each GPU, none without.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Of optimize. Default: beside each model."),
]
NoMeasure = Annotated[
    bool, typer.Option("--no-measure", help="Of check: judge without times, several at once.")
]
Kind = Annotated[str | None, choice(KINDS, "--kind", "Of tune: one kind of schedules.")]
Limit = Annotated[
    float, typer.Option("--limit", metavar="SECONDS", help="Of tune: for each model.")
]
