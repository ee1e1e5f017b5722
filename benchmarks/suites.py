"""What a suite costs: pairs a minute by engine, seconds a unit, memory of the driver, and faults.

    python benchmarks/suites.py --pairs 1000
    python benchmarks/suites.py --pairs 40 --units 100000 --faults 500 --json FILE
    python benchmarks/suites.py --pairs 100 --timed 20 --units 0 --json FILE    on a GPU

Pairs are small (a pointwise model and itself as the candidate, each with a constant of its own) and
judged without times, as many at once as there are processors, on the GPU if there is one; `--timed`
ones are measured, too, one at a time. The bare check is `opweld.check` in a
process of its own, one after the other, and so is a suite of one slot beside it. The units of the
driver's memory do nothing; those of the faults are of `tests/suite/operations.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today  # noqa: E402
from tests.suite.operations import CRASHES, FAILS, HANGS, KILLS, NUM_UNITS  # noqa: E402
from tests.suite.stores import command, num_results, numbered, results, verdicts  # noqa: E402
from tests.unit.suite.fakes import WORK, FakeEngine, slot  # noqa: E402

from opweld.suite.driver import drive  # noqa: E402
from opweld.suite.spec import Spec  # noqa: E402
from opweld.suite.store import Store  # noqa: E402
from opweld.suite.values import Unit  # noqa: E402

MODEL = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {0}.0
def get_inputs():
    return [torch.randn(9, 33)]
def get_init_inputs():
    return []
"""
NEW = MODEL.replace("class Model(", "class Base(") + "class ModelNew(Base):\n    pass\n"
BARE = """import sys
import opweld
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
settings = opweld.Settings(device=device, measure=False)
assert opweld.check(*sys.argv[1:], settings).verdict.passed
"""
BARE_PAIRS = 8


def main(
    pairs: Annotated[int, typer.Option(help="How many for each engine.")] = 1000,
    timed: Annotated[int, typer.Option(help="How many of them with times.")] = 0,
    units: Annotated[int, typer.Option(help="For the driver's memory; 0: none.")] = 100_000,
    faults: Annotated[int, typer.Option(help="Units of the run of faults, in forties.")] = 0,
    out: Annotated[Path | None, typer.Option("--json", help="The account.")] = None,
    only_memory: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    if only_memory:
        print(json.dumps(memory(units)))
        return
    on_cpu = not torch.cuda.is_available()
    account: dict[str, Any] = {**run_of_today(on_cpu), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_pairs(folder, max(pairs, timed, BARE_PAIRS))
        account["overhead"] = overhead(folder)
        account["pairs"] = {
            engine: rate(folder, engine, pairs)
            for engine in ("local", "ray")
            if engine == "local" or importlib.util.find_spec("ray")
        }
        if timed:
            account["timed"] = rate(folder, "local", timed, measured=True)
        if faults:
            account["faults"] = run_of_faults(folder, faults)
    if units:
        argv = [sys.executable, __file__, "--only-memory", "--units", str(units)]
        done = subprocess.run(argv, capture_output=True, check=True)
        account["memory"] = json.loads(done.stdout)
    account["load_after"] = os.getloadavg()
    text = json.dumps(account, indent=2) + "\n"
    print(text)
    if out:
        out.write_text(text)


def write_pairs(folder: Path, number: int) -> None:
    for n in range(number):
        (folder / f"m{n}.py").write_text(MODEL.format(n + 1))
        (folder / f"m{n}_new.py").write_text(NEW.format(n + 1))


def spec_of(folder: Path, number: int) -> Path:
    path = folder / f"{number}.jsonl"
    rows = ({"model": f"m{n}.py", "new": f"m{n}_new.py"} for n in range(number))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def suite(folder: Path, number: int, *more: str, measured: bool = False) -> tuple[float, Path]:
    """Seconds from the start of the command to its end, and the store."""
    more = more if measured else ("--no-measure", *more)
    store = folder / f"{'-'.join(('s', str(number), *more))}.sqlite"
    argv = [sys.executable, "-m", "opweld", "suite", str(spec_of(folder, number))]
    begin = time.monotonic()
    subprocess.run([*argv, "--store", str(store), *more], cwd=ROOT, check=True)
    return time.monotonic() - begin, store


def rate(folder: Path, engine: str, number: int, measured: bool = False) -> dict[str, Any]:
    seconds, store = suite(folder, number, "--engine", engine, measured=measured)
    found = results(store)
    assert len(found) == number and {row["verdict"] for row in found} == {"passed"}
    return {"pairs": number, "seconds": seconds, "per_minute": 60 * number / seconds}


def overhead(folder: Path) -> dict[str, Any]:
    """Seconds a pair: a process for each, and a suite of one slot, whose judge stays warm."""
    begin = time.monotonic()
    for n in range(BARE_PAIRS):
        argv = [sys.executable, "-c", BARE, f"m{n}.py", f"m{n}_new.py"]
        subprocess.run(argv, cwd=folder, check=True, env={**os.environ, **path()})
    bare = (time.monotonic() - begin) / BARE_PAIRS
    seconds, store = suite(folder, BARE_PAIRS, "--jobs", "1")
    inside = [row["seconds"] for row in results(store)]
    return {
        "pairs": BARE_PAIRS,
        "bare_check_s": bare,
        "suite_of_one_slot_s": seconds / BARE_PAIRS,
        "in_the_slot_s": sum(inside) / BARE_PAIRS,
        "first_in_the_slot_s": inside[0],
        "driver_s": (seconds - sum(inside)) / BARE_PAIRS,
    }


def path() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src")}


def memory(units: int) -> dict[str, Any]:
    """Resident megabytes of the driver after a tenth of the units, and after all."""
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.py")
        model.write_text("x = 1\n")

        def counted() -> Iterator[Unit]:
            for n in range(units):
                if n in (units // 10, units - 1):
                    marks.append(resident_mb())
                yield Unit(str(n), str(model))

        begin = time.monotonic()
        with Store(Path(folder, "s.sqlite")) as store:
            drive(Spec(counted(), units), WORK, FakeEngine([slot("a"), slot("b")]), store)
        seconds = time.monotonic() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    after = {"after_a_tenth_mb": marks[0], "after_all_mb": marks[1], "most_mb": most}
    return {"units": units, **after, "driver_ms_a_unit": 1e3 * seconds / units}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run_of_faults(folder: Path, units: int) -> dict[str, Any]:
    """Units that do harm, and a driver that is killed twice: how many results each unit has."""
    spec, store = numbered(folder, units), folder / "faults.sqlite"
    argv = command(spec, store, "harmful_in_forties")
    begin = time.monotonic()
    for share in (0.3, 0.6):
        driver = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL)
        while num_results(store) < share * units:
            time.sleep(0.1)
        driver.kill()
        driver.wait()
    subprocess.run(argv, cwd=ROOT, stderr=subprocess.DEVNULL, check=False)
    counts = Counter(row["name"] for row in results(store))
    harm = {"crash": CRASHES, "hang": HANGS, "kill": KILLS, "fail": FAILS}
    return {
        "units": units,
        "of_forty": {name: len(numbers) for name, numbers in harm.items()},
        "rows": sum(counts.values()),
        "units_with_one_row": sum(count == 1 for count in counts.values()),
        "verdicts": {f"{verdict}": num for (verdict, _), num in sorted(verdicts(store).items())},
        "seconds": time.monotonic() - begin,
        "forties": units / NUM_UNITS,
    }


if __name__ == "__main__":
    typer.run(main)
