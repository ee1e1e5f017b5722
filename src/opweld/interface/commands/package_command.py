"""`opweld package`: a wheel of an emitted file, for machines without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.interface.arguments import Debug
from opweld.interface.exits import exit_with
from opweld.shipping.wheel import package

Written = Annotated[
    Path, typer.Argument(metavar="MODEL_new.py", help="A file that `optimize` wrote.")
]
Archs = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="NAMES",
        help="GPUs as sm_90a,sm_80, or a level of processors as x86-64-v3. "
        "Default: what the file was made for.",
    ),
]
Folder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIST", help="The folder for the wheel.")
]


def package_command(
    written: Written, arch: Archs = None, out: Folder = Path("dist"), debug: Debug = False
) -> None:
    """Build the kernels of MODEL_new.py, and write a wheel that needs no compiler.

    It is for all Pythons from 3.11 and torch from 2.11 on. Nothing of the file is run.
    """

    def run() -> int:
        wheel = package(written, arch, out)
        print(f"{wheel}: {wheel.stat().st_size / 1000:.0f} kB")
        return 0

    exit_with(run, debug)
