"""Everything a user can choose, with its default and its sentence of help, in one place.

The environment variables are fields too; docs/options.md and `opweld optimize --help` are
generated from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from opweld.errors import UnsupportedPrecision, UnsupportedTarget, UserError
from opweld.judge.values import ALL_BASELINES, BASELINES
from opweld.sandbox import AUTO, SANDBOXES, Sandbox

# GPUs and architectures: those in target.py.
GPUS = ("h200", "h100", "a100", "l40s", "rtx4090", "b200")
ARCHITECTURES = (
    *("sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a"),
    *("sm_100", "sm_103", "sm_110", "sm_120", "sm_121"),
)
TARGETS = ("auto", "cpu", "cuda", *GPUS, *ARCHITECTURES)
PRECISIONS = ("match",)
MODES = ("own", "eval", "training", "both")
AUTOCASTS = ("bfloat16", "float16")
LOGS = ("info", "plan", "guards")
DTYPES = ("float16", "bfloat16", "float32", "float64")
ALGEBRAS = ("exact", "finite", "off")
OWN_TABLE = Path(__file__).with_name("schedules.txt")


def _option(default: Any, help: str, flag: str | None = None, env: str | None = None) -> Any:
    return field(default=default, metadata={"help": help, "flag": flag, "env": env})


@dataclass(frozen=True, slots=True)
class Options:
    """The choices of one run; frozen, so that every stage sees the same."""

    target: str = _option(
        "auto",
        "What to make kernels for: auto (what the machine has), cpu, cuda, a GPU "
        f"({', '.join(GPUS)}) or an architecture ({', '.join(ARCHITECTURES)}).",
        "--target",
    )
    precision: str = _option(
        "match", "How precise: match is at least as accurate as eager.", "--precision"
    )
    mode: str = _option(
        "own",
        "Make kernels for eval, training or both; own is the mode that Model is made in.",
        "--mode",
    )
    autocast: tuple[str, ...] = _option(
        (),
        "Make kernels for calls under autocast to bfloat16 or float16, too; may be given twice.",
        "--autocast",
    )
    dtype: tuple[str, ...] = _option(
        (),
        f"Make kernels for parameters and floating inputs of another dtype, too: "
        f"{', '.join(DTYPES)}; may be repeated.",
        "--dtype",
    )
    dynamic: tuple[str, ...] = _option(
        (),
        "Axes of an input whose sizes vary from call to call, x:1 or mask:0,1; may be repeated. "
        "The batch does so anyway.",
        "--dynamic",
    )
    training: bool = _option(
        False,
        "Make kernels for the gradients of what is fused, too, and keep the fewest bytes for them.",
        "--training",
    )
    memory_budget: float = _option(
        1.0,
        "With --training, the share of what is kept for gradients beside the operands that may "
        "stay: from 1, so much that no product or sum is computed again, to 0, where they are.",
        "--memory-budget",
    )
    counts_kept: bool = _option(
        False, "Count the bytes that are kept for gradients, and those that PyTorch keeps."
    )
    batch: int | None = _option(
        None, "Cut the leading dimension of the model's inputs to this size.", "--batch"
    )
    seed: int | None = _option(
        None, "Seed of parameters and inputs; drawn and reported where not given.", "--seed"
    )
    check: bool = _option(
        True, "Leave the judge out; the file then says that it is not verified.", "--no-check"
    )
    weight_cache: bool = _option(
        True, "Derive nothing from a weight that lasts from call to call.", "--no-weight-cache"
    )
    algebra: str = _option(
        "exact",
        "How far the mathematics may change: exact, with NaN and infinities as in the original; "
        "finite, where inputs and weights are assumed to be finite; off.",
        "--algebra",
    )
    thorough: bool = _option(
        False,
        "Judge on larger inputs and with more repeats: minutes instead of seconds.",
        "--thorough",
    )
    stop_at_first: bool = _option(
        True, "Go on after a check that fails, and list all that do.", "--all"
    )
    baselines: str = _option(
        ",".join(BASELINES),
        "What ModelNew is timed beside, with commas: eager, compile, graph, autotune (slow).",
        "--baselines",
    )
    exclude: frozenset[str] = _option(
        frozenset(), "Groups (by name), or reductions (by line), that are left to PyTorch."
    )
    time_limit_s: float = _option(
        600.0,
        "Seconds that the model file, and each child of the judge, may take.",
        "--time-limit",
        "OPWELD_TIME_LIMIT",
    )
    sandbox: str = _option(
        AUTO,
        "Confine what runs model files and candidates: auto, required (or refuse), or off.",
        "--sandbox",
        "OPWELD_SANDBOX",
    )
    pass_env: tuple[str, ...] = _option(
        (),
        "Name of an environment variable that the sandbox passes on, too; may be repeated.",
        "--pass-env",
    )
    schedules: str | None = _option(
        None,
        "Table of measured schedules that plans believe, instead of the package's own.",
        None,
        "OPWELD_SCHEDULES",
    )
    dump: str | None = _option(
        None,
        "Folder that gets each stage's text, 01-capture.txt to 06-source.*.",
        None,
        "OPWELD_DUMP",
    )
    log: str = _option(
        "",
        "What is logged to standard error, with commas: info, plan, guards (docs/stability.md).",
        None,
        "OPWELD_LOG",
    )
    debug: int = _option(
        0,
        "1 timings, 2 plan and reasons, 3 rule hits, 4 sources, 5 every stage's text.",
        None,
        "OPWELD_DEBUG",
    )

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UnsupportedTarget(
                f"there is no target {self.target!r}", next_step=f"use one of {', '.join(TARGETS)}"
            )
        if self.precision not in PRECISIONS:
            raise UnsupportedPrecision(
                f"precision {self.precision!r} is not there yet",
                next_step="use --precision match, at least as accurate as eager",
            )
        if self.mode not in MODES:
            raise UserError(f"there is no mode {self.mode!r}", next_step=f"use {_either(MODES)}")
        if self.algebra not in ALGEBRAS:
            raise UserError(
                f"there is no algebra {self.algebra!r}", next_step=f"use {_either(ALGEBRAS)}"
            )
        _refuse_others("--autocast", self.autocast, AUTOCASTS)
        _refuse_others("--dtype", self.dtype, DTYPES)
        _refuse_others("OPWELD_LOG", listed(self.log) or (), LOGS)
        for name in self.baseline_names:
            if name not in ALL_BASELINES:
                raise UserError(
                    f"there is no baseline {name!r}", next_step=f"use {', '.join(ALL_BASELINES)}"
                )
        if self.sandbox not in SANDBOXES:
            raise UserError(
                f"there is no sandbox {self.sandbox!r}", next_step=f"use {_either(SANDBOXES)}"
            )
        self.dynamic_axes  # noqa: B018 which raises where it cannot be read
        if not 0 <= self.memory_budget <= 1:
            raise UserError(f"--memory-budget must be from 0 to 1, not {self.memory_budget:g}")
        if self.memory_budget < 1 and not self.training:
            raise UserError(
                "--memory-budget is of what is kept for gradients", next_step="add --training"
            )
        if self.batch is not None and self.batch < 1:
            raise UserError(f"--batch must be at least 1, not {self.batch}")
        if self.time_limit_s <= 0:
            raise UserError(f"the time limit must be above 0 seconds, not {self.time_limit_s:g}")
        if not 0 <= self.debug <= 5:
            raise UserError(f"OPWELD_DEBUG must be 0 to 5, not {self.debug}")

    @property
    def dynamic_axes(self) -> tuple[tuple[str, int], ...]:
        """(input, axis) of each axis of `dynamic`."""
        return tuple(pair for text in self.dynamic for pair in _axes_of(text))

    @property
    def chosen_sandbox(self) -> Sandbox:
        """For the processes that run what is not ours."""
        return Sandbox(self.sandbox, self.pass_env)

    @property
    def table(self) -> Path:
        """The table of measured schedules: the one that is named, or the package's own."""
        return Path(self.schedules) if self.schedules else OWN_TABLE

    @property
    def baseline_names(self) -> tuple[str, ...]:
        """The names in `baselines`, which stand there with commas between them."""
        return tuple(name.strip() for name in self.baselines.split(",") if name.strip())


def _axes_of(text: str) -> list[tuple[str, int]]:
    """("x", 0) and ("x", 1) of "x:0,1"."""
    name, _, axes = text.rpartition(":")
    numbers = [axis.strip() for axis in axes.split(",")]
    if not name or not all(number.isdecimal() for number in numbers):
        raise UserError(f"--dynamic cannot be {text!r}", next_step="use input:axis, such as x:0,1")
    return [(name.strip(), int(number)) for number in numbers]


def listed(values: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """What an option that may be repeated was given, each once; commas stand for repetition."""
    if values is None:
        return None
    texts = [values] if isinstance(values, str) else values
    names = (name.strip() for text in texts for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def _refuse_others(flag: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"{flag} cannot be {name!r}", next_step=f"use {_either(known)}")


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def from_environment(environ: Mapping[str, str] | None = None, **choices: Any) -> Options:
    """The options of `choices`; a field that is None there comes from its environment variable.

    Raises:
        UserError: a variable is not of its field's type, or a value is out of range.
    """
    environ = os.environ if environ is None else environ
    choices = {name: value for name, value in choices.items() if value is not None}
    for item in fields(Options):
        name = item.metadata["env"]
        if name and environ.get(name) and item.name not in choices:
            choices[item.name] = _parse(item, name, environ[name])
    return Options(**choices)


def _parse(item: Field[Any], name: str, text: str) -> str | int | float:
    kinds: dict[type, type[str] | type[int] | type[float]] = {int: int, float: float}
    kind = kinds.get(type(item.default), str)
    try:
        return kind(text)
    except ValueError as error:
        raise UserError(f"{name} must be of type {kind.__name__}, not {text!r}") from error


def flag_table() -> str:
    """The command line's options as a Markdown table, for docs/options.md."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for item in fields(Options):
        if item.metadata["flag"]:
            default = _default_text(item.default)
            rows.append(f"| `{item.metadata['flag']}` | {default} | {item.metadata['help']} |")
    return "\n".join(rows) + "\n"


def environment_table() -> str:
    """The environment variables as a Markdown table, for docs/options.md."""
    rows = ["| variable | field | default | meaning |", "|---|---|---|---|"]
    for item in fields(Options):
        name, help = item.metadata["env"], item.metadata["help"]
        if name:
            rows.append(f"| `{name}` | `{item.name}` | {_default_text(item.default)} | {help} |")
    return "\n".join(rows) + "\n"


def _default_text(default: object) -> str:
    if default in (None, (), ""):
        return "none"
    if isinstance(default, bool):
        return "off"  # each flag of this kind turns off what is on by default
    return f"{default:g}" if isinstance(default, float) else str(default)


def option_help(name: str) -> str:
    """The sentence of help of the field `name`."""
    return next(item.metadata["help"] for item in fields(Options) if item.name == name)
