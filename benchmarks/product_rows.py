"""Rows of the table of schedules from an account of products.py: ours or the library's, by measure.

    python benchmarks/product_rows.py benchmarks/results/products-nvidia-h200.json --target sm_90a

Of a product with nothing after it eager's call is the library's, timed in the same run. A case that
was planned as the library's says nothing of ours, and gives no row. Rows go into the place of those
of their class in src/opweld/schedules.txt with --write.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.products import CASES, Case  # noqa: E402
from benchmarks.refusal import why_refused  # noqa: E402

from opweld.driver import capture_file, tunables_of  # noqa: E402
from opweld.ir.measured import Maker, Measured, ProductClass, Table  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.schedules import line_of, with_rows  # noqa: E402

TABLE = ROOT / "src" / "opweld" / "schedules.txt"
# The inputs of a case are made to find its class: those that are larger are left out.
MOST_BYTES = 2**33


def main(
    account: Annotated[Path, typer.Argument(help="What products.py wrote.")],
    target: Annotated[str, typer.Option(help="The target that it was compiled for.")] = "sm_90a",
    write: Annotated[bool, typer.Option(help="Puts the rows into the table.")] = False,
) -> None:
    """Prints the rows, in the order of the cases."""
    cases = {case.name: case for case in CASES}
    found = json.loads(account.read_text())["cases"]
    rows = tuple(
        row_of(cases[result["name"]], result, target)
        for result in found
        if result["name"] in cases and tells(cases[result["name"]], result)
    )
    for row in rows:
        print(line_of(row))
    if write:
        TABLE.write_text(with_rows(TABLE.read_text(), rows))


def tells(case: Case, result: dict[str, Any]) -> bool:
    """Whether both were timed and ours is right, for the device's own target and flags."""
    if why_refused(result):
        return False
    own = case.target == "auto" and case.precision == "highest"
    ours = "library's" not in result["plan"] and "gains nothing" not in result["plan"]
    return case.plain and own and ours and case.num_bytes <= MOST_BYTES


def row_of(case: Case, result: dict[str, Any], target: str) -> Measured:
    times = {Maker.OURS: result["opweld_ms"] * 1e3, Maker.LIBRARY: result["eager_ms"] * 1e3}
    chosen, against = sorted(times, key=times.__getitem__)
    run = result["run"]
    return Measured(
        target=target,
        shape=class_of(case, target),
        schedule=chosen,
        us=times[chosen],
        against=against,
        against_us=times[against],
        device=run["device"],
        date=run["date"],
        torch=run["versions"]["torch"],
        command="benchmarks/products.py",
    )


def class_of(case: Case, target: str) -> ProductClass:
    """The class of the only product of a case."""
    options = Options(target=target)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "product.py")
        model.write_text(case.source)
        found = tunables_of(capture_file(model, options), options, Table())
    (shape,) = [each.shape for each in found if isinstance(each.shape, ProductClass)]
    return shape


if __name__ == "__main__":
    typer.run(main)
