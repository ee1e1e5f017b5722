"""What the judge is asked and what it answers: frozen values that survive JSON.

Field names are the contract of the command line's `--json`. Times are milliseconds, sizes bytes,
bandwidths GB/s (10^9 bytes), errors absolute against a float64 run of the original.
"""

from __future__ import annotations

import dataclasses
import math
import types
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Grade = Literal["A", "B", "C", "F"]
GRADES: tuple[Grade, ...] = ("A", "B", "C", "F")
# What ModelNew can be timed beside; a CUDA graph only on CUDA, and "autotune" takes minutes.
ALL_BASELINES = ("eager", "compile", "graph", "autotune")
BASELINES = ("eager", "compile", "graph")
JUDGED_MODES = ("own", "eval", "training")
# What a candidate is judged for; `Settings` says what each of them asks.
CALL, FULL = SCOPES = ("call", "full")
PRECISIONS = ("match", "tf32", "fp16", "bf16")

# What losses in training are compared with, if it can be had.
FLOAT64_RUN = "float64"
# The check of them.
LOSS_CURVES = "loss curves"

# Slow runs of one side over its fast ones, at most.
MOST_VARIATION = 5.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to judge.

    `seed` None draws one and records it. `mode` is what the example call is judged and timed in:
    "eval", "training", or "own" for the mode that the model file makes Model in. `autocast` and
    `dtype` name the dtypes in which it is judged as well. `batch` cuts the leading dimension of
    the model's own inputs. `precision` is what is accepted: "match" for the grades, "tf32", "fp16"
    or "bf16" for errors up to those of the original lowered to that format. `num_runs` None lets
    the time budget decide (`budget_s` seconds for each timed thing).
    `memory_limit_bytes` is what the candidate's process may take; None is four fifths of what is
    free. `thorough` is the level: larger inputs and more repeats in all checks, minutes instead of
    seconds. With `stop_at_first`, the first check that fails is the last one. `sandbox` is "auto",
    "required" or "off"; `pass_env` names variables that it passes on beside the listed ones. Both
    are the server's where `check` is given one.

    `scope` is what ModelNew must do: "call", the example call with any values and weights, for any
    batch, in its own mode and dtype, and gradients if its outputs have them; or "full", everything
    that the original does. What ModelNew refuses outside of the scope, by an exception, is
    unsupported and no failure; a wrong result is one in every scope.

    `reference` and `candidate` name functions of the two files that stand for Model and ModelNew.
    With `step` both sides are trained, for `training_steps` from each of five seeds, and a step is
    timed, too.
    """

    device: str = "auto"
    seed: int | None = None
    batch: int | None = None
    time_limit_s: float = 600.0
    measure: bool = True
    baselines: tuple[str, ...] = BASELINES
    num_runs: int | None = None
    budget_s: float = 2.0
    max_output_bytes: int = 16 * 2**20
    precision: str = "match"
    memory_limit_bytes: int | None = None
    thorough: bool = False
    stop_at_first: bool = True
    mode: str = "own"
    autocast: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    sandbox: str = "auto"
    pass_env: tuple[str, ...] = ()
    scope: str = CALL
    reference: str = ""
    candidate: str = ""
    step: bool = False
    training_steps: int = 200


def joined(*parts: str) -> str:
    """The parts that are not empty, with commas between them."""
    return ", ".join(filter(None, parts))


# Of an event that is no step, but a finding.
ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class Event:
    """One step of progress: `stage` is load, verify or measure; `message` one line for a person.

    Of the stage `estimate` there is at most one: what a first look at the times says.
    """

    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Errors:
    """Root mean square and largest absolute error against the float64 run."""

    rms: float
    max: float


@dataclass(frozen=True, slots=True)
class OutputErrors:
    """The figures of one output of several, or of one gradient."""

    output: str
    dtype: str
    grade: Grade
    error_vs_f64: Errors | None
    eager_error_vs_f64: Errors | None
    scale: float
    max_ulp: float
    ulp_p50: float
    ulp_p99: float


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried. A skipped check counts as passed and says why in `detail`.

    It is `unsupported` where ModelNew refused by an exception what it need not do.

    The figures are those of the worst output, `output`; they are None where nothing was measured
    (integers, empty outputs, an output equal to eager's bit for bit beside the model's own inputs).
    `outputs` has those of each output where there are several.
    """

    name: str
    passed: bool
    detail: str
    skipped: bool = False
    grade: Grade | None = None
    output: str | None = None
    dtype: str | None = None
    error_vs_f64: Errors | None = None
    eager_error_vs_f64: Errors | None = None
    scale: float | None = None
    max_ulp: float | None = None
    ulp_p50: float | None = None
    ulp_p99: float | None = None
    first_bad_index: tuple[int, ...] | None = None
    unsupported: bool = False
    outputs: tuple[OutputErrors, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether ModelNew does what the original does; `reason` is one sentence.

    `explanation` is what a person needs beside it, line by line: what a compiler said, the source
    line, a hint. It is empty where the sentence says it all. `precision` is what was measured:
    `float32-faithful`, `TF32-like`, ... `unjudged` says which candidate that computes nothing would
    pass every check, and for what. `scope` is what it holds for, `unsupported` names the checks
    that ModelNew refused by an exception, which is allowed outside of the scope only, and
    `inference_only` says that its outputs have no gradients although the original's do.
    """

    passed: bool
    grade: Grade
    checks: tuple[Check, ...]
    reason: str
    explanation: tuple[str, ...] = ()
    precision: str | None = None
    unjudged: tuple[str, ...] = ()
    scope: str = CALL
    unsupported: tuple[str, ...] = ()
    inference_only: bool = False

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


@dataclass(frozen=True, slots=True)
class Samples:
    """Milliseconds a call, of `n` calls: median, 10th and 90th percentile."""

    median: float
    p10: float
    p90: float
    n: int

    @property
    def variation(self) -> float:
        """The ratio of the 90th percentile to the 10th."""
        return self.p90 / self.p10 if self.p10 else 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """ModelNew's time over eager's, by pairs of blocks that ran in one round in random order.

    `ratio` is the median of the pairs; with 98 percent confidence it is between `low` and `high`.
    `p` is the probability of such pairs were ModelNew not slower, and `slower` says that it is,
    significantly (`significance.py`). Of `sets` of pairs this is the one that says so least.
    """

    ratio: float
    low: float
    high: float
    p: float
    pairs: int
    slower: bool
    sets: int = 1


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step of training, a forward with gradients and its backward, in the same run."""

    eager_ms: Samples
    compile_ms: Samples | None
    opweld_ms: Samples


@dataclass(frozen=True, slots=True)
class Timing:
    """All sides from one run, and the machine's limit measured in the same run.

    `compile_ms` is torch.compile in its default mode, `autotune_ms` in its mode "max-autotune",
    `graph_ms` the original replayed as a CUDA graph: all by the clock of the process that judges, a
    sample for each block. `inside_ms` is ModelNew's by the clock of its own process, for each call;
    `data_sheet_ms` the time that the device's data sheet says nothing can be faster than,
    `vs_eager` whether ModelNew is slower than eager. `step` are times of a step of training, where
    these were asked for.
    """

    eager_ms: Samples | None
    compile_ms: Samples | None
    opweld_ms: Samples
    limit_ms: float
    limit_reason: str
    protocol: str
    copy_gbps: float
    product_tflops: float | None
    device: str
    notes: tuple[str, ...] = ()
    graph_ms: Samples | None = None
    autotune_ms: Samples | None = None
    inside_ms: Samples | None = None
    data_sheet_ms: float | None = None
    vs_eager: Comparison | None = None
    step: StepTiming | None = None

    @property
    def variation(self) -> float:
        """The largest ratio of a 90 percent mark to its 10 percent mark."""
        told = (self.eager_ms, self.compile_ms, self.opweld_ms)
        return max((s.variation for s in told if s), default=1.0)

    @property
    def is_steady(self) -> bool:
        """Whether a ratio of two sides says anything; where it does not, no speed is claimed."""
        return self.variation <= MOST_VARIATION

    @property
    def speedup_vs_eager(self) -> float | None:
        return _speedup(self.eager_ms, self.opweld_ms)

    @property
    def speedup_vs_compile(self) -> float | None:
        return _speedup(self.compile_ms, self.opweld_ms)


def _speedup(other: Samples | None, ours: Samples) -> float | None:
    return other.median / ours.median if other and ours.median else None


@dataclass(frozen=True, slots=True)
class LossCurves:
    """Losses of both sides in training, beside those of the `reference`, the original in float64.

    From each of `num_seeds` initial weights there were `num_steps` steps, of `asked_steps`. Losses
    are the reference's, of all batches, at first and in the end; a distance is a root mean square
    over the steps; each is the median over seeds. `ratio` is ModelNew's distance over the
    `allowed_distance`: eager's, or that of eager from weights moved by a rounding, if farther.
    The reference is eager where float64 does not run, or draws other random numbers.
    """

    num_seeds: int
    num_steps: int
    asked_steps: int
    reference: str
    first_loss: float
    last_loss: float
    distance: float
    allowed_distance: float
    ratio: float

    def describe(self) -> str:
        """One clause for a person."""
        steps = f"{self.num_steps} steps"
        if self.num_steps < self.asked_steps:
            steps += f" (there is no time for {self.asked_steps})"
        own = "" if self.reference == FLOAT64_RUN else " from weights moved by a rounding"
        return (
            f"{self.num_seeds} seeds of {steps}: loss {self.first_loss:.3g} to"
            f" {self.last_loss:.3g}, {self.distance:.2g} from {self.reference}'s curve,"
            f" {self.ratio:.3g}x eager's{own}, {self.allowed_distance:.2g}"
        )


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """One registered kernel, called alone on the arguments that the model gave it.

    The judge knows name, calls, bytes and time; kind, ops, flops, registers and spills belong to
    whoever made the kernel and are filled in there.
    """

    name: str
    ms: float | None
    bytes: int
    limit_percent: float | None
    calls: int = 1
    kind: str | None = None
    ops: tuple[str, ...] = ()
    flops: int | None = None
    registers: int | None = None
    spills: int | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the software that the figures hold for.

    `sandbox` says what both sides were kept from: "on", "off", or what could not be prevented.
    """

    device: str
    device_name: str
    cpu: str
    num_threads: int
    python: str
    torch: str
    cuda: str | None
    driver: str | None
    allocator: str
    float32_precision: str
    sandbox: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `check` returns.

    `kernel_calls` counts the calls of each op in an `opweld_*` namespace during one forward on the
    model's own inputs; `timing_error` says why there is no timing although one was asked for,
    `degenerate` that an output does not depend on what the model is given, and what is to blame.
    `curves` are the losses of both sides in training, where these were asked for.
    """

    verdict: Verdict
    timing: Timing | None
    kernels: tuple[KernelTiming, ...]
    environment: Environment | None
    seed: int
    kernel_calls: dict[str, int] = field(default_factory=dict)
    timing_error: str | None = None
    degenerate: str | None = None
    curves: LossCurves | None = None

    @property
    def exit_code(self) -> int:
        return 0 if self.verdict.passed else 1

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dump`; figures that are not finite become strings."""
        return to_plain(self)


def to_plain(value: Any) -> Any:
    """Dataclasses to dictionaries, tuples to lists, NaN and infinities to their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_plain(cls: type[_T], data: Any) -> _T:
    """The value of type `cls` that `to_plain` described.

    Raises:
        TypeError, ValueError, AttributeError: it describes none.
    """
    return _read(cls, data)


def _read(hint: Any, data: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, data)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return None if data is None else _read(_not_none(hint), data)
    if origin is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in data)
    if origin is dict:
        return {key: _read(get_args(hint)[1], item) for key, item in data.items()}
    if hint in (str, int, bool) and not isinstance(data, hint):
        raise TypeError(f"{data!r:.40} is no {hint.__name__}")
    return float(data) if hint is float else data


def _read_dataclass(hint: Any, data: dict[str, Any]) -> Any:
    hints = get_type_hints(hint)
    return hint(**{name: _read(hints[name], item) for name, item in data.items()})


def _not_none(hint: Any) -> Any:
    return next(arg for arg in get_args(hint) if arg is not type(None))
