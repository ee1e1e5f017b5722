"""`run_suite`, the suite from Python; the command line calls it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from opweld.judge.values import Settings
from opweld.options import Options
from opweld.suite.asking import of_check, of_function, of_optimize, of_tune
from opweld.suite.driver import Progress, drive
from opweld.suite.engines import Engine
from opweld.suite.engines.named import Where, engine_of
from opweld.suite.spec import Item, read_spec, units_of
from opweld.suite.store import Store
from opweld.suite.values import CHECK, OPTIMIZE, TUNE, Work
from opweld.tune.values import Search


def run_suite(
    spec: str | Path | Iterable[Item],
    work: Work | str,
    store: str | Path,
    *,
    where: Where | Engine = Where(),  # noqa: B008  frozen
    output: Path | None = None,
    follow: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Progress:
    """Does all units of `spec` that the store has no result of yet, and returns how that went.

    It may be ended at any time, however hard, and started again: what has ended is in the store.

    Args:
        spec: a folder, a glob, a file of JSON lines or Parquet (`read_spec`), or an iterable of
            paths, (model, candidate), mappings or `Unit`, which is taken from as there is room.
        work: what is done with each: "check", "optimize", "tune" or "module:function" as by
            default, or made by `of_check`, `of_optimize`, `of_tune` or `of_function`.
        store: the SQLite file, which is made where it is not there.
        where: the engine and its devices.
        output: the folder for the files that `optimize` writes; None is beside each model.

    Raises:
        UserError: the suite cannot be read, the store not be written, or the engine not be had.
        NoDevices: all devices were set aside.
    """
    work = _by_default(work) if isinstance(work, str) else work
    if isinstance(spec, (str, Path)):
        units, text = read_spec(str(spec), work.do), str(spec)
    else:
        units, text = units_of(spec, work.do), "(from Python)"
    path = Path(store)
    with Store(path) as opened:
        folder = path.with_name(f"{path.name}.engine")
        engine = engine_of(where, work, folder) if isinstance(where, Where) else where
        return drive(units, work, engine, opened, text=text, output=output, follow=follow, say=say)


def _by_default(do: str) -> Work:
    """With the settings that the command has."""
    if do == CHECK:
        return of_check(Settings(), builds_ahead=True)
    if do == OPTIMIZE:
        return of_optimize(Options(), builds_ahead=True)
    if do == TUNE:
        return of_tune(Options(check=False), Search())
    return of_function(do, Settings(measure=False))
