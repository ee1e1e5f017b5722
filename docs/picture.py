"""Draws what `opweld optimize` shows on a terminal: `python3 docs/picture.py`.

Runs the command on this machine, and writes terminal-80.svg and terminal-120.svg beside this file.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
sys.path[:0] = [str(ROOT / "src")]

from opweld.interface.progress import STAGES, Progress  # noqa: E402
from opweld.interface.show import show_delivery  # noqa: E402
from opweld.judge import check  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.pipeline import Delivery, optimize  # noqa: E402
from opweld.process.builder import build_in_child  # noqa: E402
from opweld.process.worker import compile_in_child  # noqa: E402

MODEL, BATCH, WIDTHS = "examples/gelu.py", 1024, (80, 120)
COMMAND = f"opweld optimize {MODEL} --batch {BATCH} -o out/gelu_new.py"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        delivery, steps = run(Path(folder))
    for width in WIDTHS:
        picture = drawn(delivery, steps, width)
        (FOLDER / f"terminal-{width}.svg").write_text(picture, "utf-8")


def run(folder: Path) -> tuple[Delivery, list[str]]:
    """What came of the command, and the lines that its stages left on the terminal."""
    terminal = io.StringIO()
    steps = (compile_in_child, build_in_child, check)
    with Progress(Console(file=terminal, force_terminal=True, width=200)) as progress:
        out = folder / "gelu_new.py"
        found = optimize(ROOT / MODEL, out, Options(batch=BATCH), progress, *steps)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    lines = [line.strip() for line in re.split(r"[\r\n]", plain)]
    stages = "|".join(STAGES)
    left = [line for line in lines if re.match(rf"\[\d/\d\] ({stages}) +\d+\.\d s|a first", line)]
    return found, list(dict.fromkeys(left))


def drawn(delivery: Delivery, steps: list[str], width: int) -> str:
    """An SVG without any reference to another file: fonts are those of whoever looks."""
    console = Console(record=True, width=width, force_terminal=True, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for line in steps:
        console.print(line, markup=False, highlight=False)
    shown = Delivery(
        Path(MODEL), Path("out/gelu_new.py"), delivery.compiled, delivery.judgement, delivery.notes
    )
    show_delivery(shown, console)
    svg = console.export_svg(title="opweld", unique_id=f"terminal-{width}")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
