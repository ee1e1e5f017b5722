"""The judge's mutation score: faults put into emitted kernels, and the share that it catches.

    python benchmarks/mutants.py --count 300
    python benchmarks/mutants.py --only softmax --count 20 --out /tmp/mutants.json

Emitted files of the models in `models/mutants` are changed by one rule of `mutation/rules.py` at
one place, in an order that the seed draws. What does not compile, or compiles to the same object
code, does not count. Each other mutant is judged in the scope `call` and, where it passes, in
`full`. A run goes on where the account that is there ends, as long as the emitted files are the
same.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

from benchmarks.mutation import built  # noqa: E402
from benchmarks.mutation.built import NEW_CODE, NO_BUILD, SAME_CODE  # noqa: E402
from benchmarks.mutation.choice import Mutant, in_order  # noqa: E402
from benchmarks.mutation.judged import SETTINGS, judge  # noqa: E402
from benchmarks.mutation.report import (  # noqa: E402
    brief,
    checks_table,
    counted,
    score_table,
    survivors,
)
from benchmarks.record import run_of_today  # noqa: E402

from opweld.delivery import write_whole  # noqa: E402
from opweld.driver import compile_file  # noqa: E402
from opweld.judge import Server  # noqa: E402
from opweld.options import Options  # noqa: E402

MODELS = HERE / "models" / "mutants"
# Small models gain nothing from threads.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def main(
    count: Annotated[int, typer.Option(help="How many mutants are to be judged.")] = 300,
    seed: Annotated[int, typer.Option(help="Which mutants, and in what order.")] = 1,
    only: Annotated[str, typer.Option(help="Models with this in their names.")] = "",
    out: Annotated[Path, typer.Option(help="The account.")] = HERE / "results/mutants-cpu.json",
) -> None:
    """Judges mutants of emitted CPU files; writes the account after each of them."""
    models = {path.stem: path for path in sorted(MODELS.glob("*.py")) if only in path.stem}
    with tempfile.TemporaryDirectory(prefix="opweld-mutants-") as folder:
        work = Path(folder)
        sound = {name: Sound(path, work) for name, path in models.items()}
        first = next(iter(sound.values()))
        compiler = built.precompiled([each.text for each in sound.values()], first.builds, work)
        for each in sound.values():
            each.compiler = compiler
        shutil.rmtree(first.builds)  # all are built by the same compiler, which is compared
        account = resumed(out, {name: each.text for name, each in sound.items()}, seed)
        with Server(ONE_THREAD, writable=(work,)) as server:
            for name, each in sound.items():
                account["sound"].setdefault(name, None)
                if account["sound"][name] is None:
                    account["sound"][name] = each.require_passed(server)
                    write(out, account)
            for case in tried(sound, account, count, seed, server):
                account["mutants"].append(case)
                write(out, account)
                print(brief(case), flush=True)
    print("\n".join([*score_table(account), "", *checks_table(account), "", *survivors(account)]))


class Sound:
    """An emitted file without a fault, its kernels built when one is needed."""

    def __init__(self, model: Path, work: Path) -> None:
        self.model = model
        self.text = compile_file(model, Options(target="cpu", check=False)).text
        self._folder = work / model.stem
        self.compiler = built.COMPILER

    def file(self, text: str, name: str) -> Path:
        """The emitted file or a mutant of it: its name is no part of what is built."""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{name}.py"
        path.write_text(text, "utf-8")
        return path

    @property
    def builds(self) -> Path:
        """Where its kernels stand, which are built when they are first asked for."""
        folder = self._folder / built.SOUND
        if not folder.exists():
            built.build(self.file(self.text, "sound_new"), folder, self.compiler)
        return folder

    def rebuilt(self, new: Path) -> tuple[str, Path]:
        """What building a mutant of it ends with, and where."""
        folder = self._folder / built.FAULT
        shutil.rmtree(folder, ignore_errors=True)
        return built.rebuilt(new, self.builds, folder, self.compiler), folder

    def require_passed(self, server: Server) -> dict[str, Any]:
        """How the sound file is judged; without a pass its mutants would show nothing."""
        found = judge(self.model, self.file(self.text, "sound_new"), server, self.builds)
        if found["caught_in"] or "error" in found:
            raise SystemExit(f"{self.model}: the emitted file fails itself: {found}")
        return found


def resumed(out: Path, texts: dict[str, str], seed: int) -> dict[str, Any]:
    """The account that stands at `out` where it is of these files and this seed, or a new one."""
    emitted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    account: dict[str, Any] = {
        "suite": "mutants",
        **run_of_today(on_cpu=True),
        "target": "cpu",
        "seed": seed,
        "settings": {"seed": SETTINGS.seed, "time_limit_s": SETTINGS.time_limit_s},
        "emitted": emitted,
        "sound": {},
        "mutants": [],
    }
    if not out.exists():
        return account
    before = json.loads(out.read_text())
    if (before["emitted"], before["seed"]) != (emitted, seed):
        return account
    return {**account, "sound": before["sound"], "mutants": before["mutants"]}


def tried(
    sound: dict[str, Sound], account: dict[str, Any], count: int, seed: int, server: Server
) -> Iterator[dict[str, Any]]:
    """Mutants in their order, less those that the account has, until it has `count` that count."""
    known = {case["name"] for case in account["mutants"]}
    texts = {name: each.text for name, each in sound.items()}
    for mutant in in_order(texts, seed):
        if len(counted(account["mutants"])) >= count:
            return
        if mutant.name not in known:
            yield {**mutant.described(texts[mutant.model]), **outcome(mutant, sound, server)}


def outcome(mutant: Mutant, sound: dict[str, Sound], server: Server) -> dict[str, Any]:
    """What becomes of a mutant: it does not compile, is the same code, is caught or survives."""
    of = sound[mutant.model]
    new = of.file(mutant.applied(of.text), "mutant_new")
    if mutant.kind == "python":
        code, builds = python_code(mutant, of.text), of.builds
    else:
        code, builds = of.rebuilt(new)
    if code != NEW_CODE:
        return {"outcome": code}
    found = judge(of.model, new, server, builds)
    how = "not judged" if "error" in found else "caught" if found["caught_in"] else "survived"
    return {"outcome": how, **found}


def python_code(mutant: Mutant, text: str) -> str:
    """Whether the file is another Python program, or none."""
    try:
        new = ast.dump(ast.parse(mutant.applied(text)))
    except SyntaxError:
        return NO_BUILD
    return SAME_CODE if new == ast.dump(ast.parse(text)) else NEW_CODE


def write(out: Path, account: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, json.dumps(account, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
