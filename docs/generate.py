"""Writes the generated parts of the documentation: `python3 docs/generate.py`.

A part stands between `<!-- generated:NAME ARGUMENTS -->` and `<!-- end -->`, in README.md and in
the pages of this folder. Tables come from the code. `stage FILE STAGE TARGET [FROM [TO]]` is what
`opweld plan` prints for a model of `examples/` (or, for the stage `emit`, the emitted file): the
lines from the first that matches FROM up to the next that matches TO, which is left out. FROM may
be several patterns, `A//B`: the first line with B after the first with A. `grammar MODULE` is the
grammar in the module's docstring. `classes RESULT` is a table of cheats, `overview` the one of
`benchmarks/overview.py`, `mutants RESULT TABLE` one of an account of mutants, of
`benchmarks/mutation/report.py`. The JSON schemas in schema/ are generated whole.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks import overview  # noqa: E402
from benchmarks.mutation import report  # noqa: E402

from opweld.account import SCHEMA_VERSION, Account  # noqa: E402
from opweld.driver import compile_file  # noqa: E402
from opweld.ir.ops import OPS, Kind, Op  # noqa: E402
from opweld.ir.rules.rewrite import Rule  # noqa: E402
from opweld.judge.numerics import grade  # noqa: E402
from opweld.options import Options, environment_table, flag_table  # noqa: E402
from opweld.schema import schema_of  # noqa: E402
from opweld.simplify.needed_outputs.only_needed import TEXT as NEEDED  # noqa: E402
from opweld.simplify.rules import LINEAR, LINEAR_FINITE, RULES  # noqa: E402
from opweld.target import TARGETS  # noqa: E402

PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(FOLDER.glob("*.md")))
PART = re.compile(r"<!-- generated:(.+?) -->\n.*?<!-- end -->", re.DOTALL)
# Rows enough for every stage; the sizes that the texts show are symbolic.
BATCH = 64
WIDTH = 100
# The commands that write an account, and what theirs has always.
SCHEMAS = {"check": ("seed", "verdict"), "optimize": ("target",)}


def op_table() -> str:
    """Every operation, by its kind, number of operands and attributes."""
    groups: dict[tuple[Kind, int, str], list[Op]] = {}
    for op, row in OPS.items():
        fields = ", ".join(f"`{name}`" for name in row.attrs.__slots__)
        groups.setdefault((row.kind, row.arity, fields), []).append(op)
    rows = [
        f"| {kind.value} | {'any' if arity < 0 else arity} | {fields} | "
        f"{', '.join(op.value for op in ops)} |"
        for (kind, arity, fields), ops in groups.items()
    ]
    return _table("kind | operands | attributes | operations", rows)


def rule_list() -> str:
    """Every rule as it prints, in the order in which they are tried."""
    return _listed(RULES)


def linear_rule_list() -> str:
    """The same of the rules that change what is computed; those for finite inputs last."""
    return _listed(dict.fromkeys((*LINEAR, *LINEAR_FINITE, NEEDED)))


def _listed(rules: Iterable[Rule | str]) -> str:
    return _block("text", [line for rule in rules for line in _wrapped(str(rule), WIDTH)])


def target_table() -> str:
    rows = [
        f"| `{t.name}` | {t.gpu or 'two cores'} | {t.arch or t.language} | {t.multiprocessors} | "
        f"{t.access_bytes} | {t.pointwise_threads} | {t.copy_bytes_per_s / 1e12:.4g} | "
        f"{t.pointwise_flops_per_s / 1e12:.4g} |"
        for t in TARGETS.values()
    ]
    return _table(
        "target | made for | architecture | multiprocessors | access, bytes | threads a block | "
        "copy, TB/s | "
        "pointwise, TFLOP/s",
        rows,
    )


def grade_table() -> str:
    rows = (
        f"| A | rms error within {grade.RMS_MARGIN_A - 1:.0%} of eager's and largest error within "
        f"{grade.MAX_MARGIN_A:g} times eager's |",
        f"| B | both within {grade.MARGIN_B:g} times eager's "
        f"({grade.MARGIN_B_16BIT:g} times for 16-bit types) |",
        "| C | only within the default tolerances of `torch.testing.assert_close` |",
        "| F | none of these; NaN or infinity where neither eager nor float64 has them; or small "
        "elements of an output lose half of their digits and eager's do not |",
    )
    return _table("grade | meaning", rows)


def mutants(result: str, table: str) -> str:
    """A table of an account of mutants, of those in `benchmarks/results/`."""
    account = json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text("utf-8"))
    return "\n".join(report.TABLES[table](account)) + "\n"


def classes(result: str) -> str:
    """Of each class of cheats, how many each level catches; from an account of the catalogue."""
    account = json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text("utf-8"))
    levels = {name: found["cheats"] for name, found in account["catalogue"].items()}
    kinds = dict.fromkeys(cheat["kind"] for cheats in levels.values() for cheat in cheats)
    rows = []
    for kind in (*sorted(kinds), None):
        of = [[c for c in cheats if kind in (c["kind"], None)] for cheats in levels.values()]
        counts = len(of[0]), *(sum(c["right"] for c in cheats) for cheats in of)
        rows.append(f"| {kind or 'all'} | {' | '.join(map(str, counts))} |")
    return _table(" | ".join(("class", "cheats", *levels)), rows)


def grammar(module: str) -> str:
    """The paragraphs of a module's docstring that define something."""
    paragraphs = (importlib.import_module(module).__doc__ or "").split("\n\n")
    return _block("text", "\n\n".join(p for p in paragraphs if re.match(r"\w+ +=", p)).split("\n"))


def stage(file: str, name: str, target: str, start: str = "", stop: str = "") -> str:
    """What a stage gives for one of the examples, or a part of it; that of a name with "training "
    before it is with kernels for gradients.
    """
    options, _, name = name.rpartition(" ")
    lines = _stages(file, target, bool(options))[name].rstrip("\n").split("\n")
    language = {"emit": "python", "source": "cpp"}.get(name, "text")
    return _block(language, _between(lines, start, stop))


@functools.cache
def _stages(file: str, target: str, training: bool = False) -> dict[str, str]:
    options = Options(target=target, batch=BATCH, check=False, training=training)
    return compile_file(ROOT / file, options).stages


def _between(lines: list[str], start: str, stop: str) -> list[str]:
    first = 0
    for pattern in start.split("//"):
        first = next(i for i in range(first, len(lines)) if re.search(pattern, lines[i]))
    after = range(first + 1, len(lines)) if stop else ()
    last = next((i for i in after if re.search(stop, lines[i])), len(lines))
    return textwrap.dedent("\n".join(lines[first:last]).rstrip()).split("\n")


def _block(language: str, lines: Iterable[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"]) + "\n"


def _table(heads: str, rows: Iterable[str]) -> str:
    rule = "|---" * (heads.count("|") + 1) + "|"
    return "\n".join([f"| {heads} |", rule, *rows]) + "\n"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)


PARTS: dict[str, Callable[..., str]] = {
    "options": flag_table,
    "environment": environment_table,
    "ops": op_table,
    "rules": rule_list,
    "linear-rules": linear_rule_list,
    "targets": target_table,
    "grades": grade_table,
    "classes": classes,
    "grammar": grammar,
    "mutants": mutants,
    "overview": overview.table,
    "stage": stage,
}


def generated(text: str) -> str:
    """The page with its parts as they should be."""

    def part(match: re.Match[str]) -> str:
        name, *arguments = shlex.split(match[1])
        return f"<!-- generated:{match[1]} -->\n{PARTS[name](*arguments)}<!-- end -->"

    return PART.sub(part, text)


def schema_file(command: str) -> Path:
    return FOLDER / "schema" / f"{command}.schema.json"


def schema_text(command: str) -> str:
    """The schema of what `opweld COMMAND --json` writes."""
    title = f"opweld {command} --json"
    schema = schema_of(Account, title, SCHEMA_VERSION, SCHEMAS[command])
    return json.dumps(schema, indent=1) + "\n"


def main() -> None:
    for command in SCHEMAS:
        schema_file(command).write_text(schema_text(command), "utf-8")
    for path in PAGES:
        path.write_text(generated(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
