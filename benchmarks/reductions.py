"""Times reductions, scans and losses beside eager, torch.compile and a copy of as many bytes.

    python benchmarks/reductions.py                            every work at full size
    python benchmarks/reductions.py --only 'softmax|MSE' --baselines compile,autotune
    python benchmarks/reductions.py --target cpu --scale 0.001

Each case is a small model that goes through the compiler; the emitted file is built, imported and
timed, everything that a call does included. The ways of one case run interleaved, on CUDA by events
behind a flush of the L2 cache. The share of copy is the time of a copy of the bytes that must move,
each operand read once and each result written once, over ours. Errors are those of the first rows
against float64. One JSON file keeps the run.
"""

from __future__ import annotations

import copy
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.compiled import compiled_ways  # noqa: E402
from benchmarks.one_expression import model_text  # noqa: E402
from benchmarks.record import (  # noqa: E402
    device_name,
    keep,
    run_of_today,
    runs_that_differ,
    slug,
)
from benchmarks.refusal import why_refused  # noqa: E402

from opweld.driver import compile_file  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.judge.numerics.compare import ErrorSums  # noqa: E402
from opweld.judge.numerics.grade import grade  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

NORMAL = "torch.randn({shape}, device='{device}')"
POSITIVE = "torch.rand({shape}, device='{device}') + 0.1"
SIGN = "torch.randn({shape}, device='{device}').sign()"
MASK = "torch.randint(2, {shape}, dtype=torch.bool, device='{device}')"
FAR_OFF = "torch.randn({shape}, device='{device}') + 1e6"
# So many elements of each operand go through the float64 run.
PIECE_ELEMS = 2**24
# Two, so that no size is the 1 that an export takes for a constant.
LEAST_BATCH = 2
# Processes that compile and build: each holds the inputs of a case.
WORKERS = 4


class Work(Protocol):
    """What is compiled and timed: the text of a model, and the bytes that must move."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def num_bytes(self) -> int: ...
    def source(self, device: str) -> str: ...


@dataclass(frozen=True)
class Case:
    """A forward of operands that all have `shape`; its axis 0 is scaled.

    `beside` are operands of one number a row. `results` is how many elements it gives for each of
    an operand's: 1 for a map, 0 for a few.
    """

    name: str
    result: str
    shape: tuple[int, ...]
    operands: tuple[str, ...] = (NORMAL,)
    beside: tuple[str, ...] = ()
    init: str = "pass"
    results: float = 0.0

    def scaled(self, scale: float) -> Case:
        batch = min(max(round(self.shape[0] * scale), LEAST_BATCH), self.shape[0])
        return replace(self, shape=(batch, *self.shape[1:]))

    def source(self, device: str) -> str:
        given = {"shape": self.shape, "rows": self.shape[0], "device": device}
        inputs = [text.format(**given) for text in (*self.operands, *self.beside)]
        return model_text(self.result, inputs, self.init)

    @property
    def num_bytes(self) -> int:
        """Bytes that must move: weights, which are small, left out."""
        read = sum(1 if operand == MASK else 4 for operand in self.operands)
        return round(math.prod(self.shape) * (read + 4 * self.results))


def of_map(name: str, result: str, *shape: int, init: str = "pass") -> Case:
    return Case(name, result, shape, init=init, results=1.0)


def scan(name: str, result: str, *operands: str) -> Case:
    """Along the last of two axes."""
    return Case(name, result, (32768, 32768), (NORMAL, *operands), results=1.0)


BEHIND_ZERO = "torch.cat([torch.zeros_like(x.select(1, 0).unsqueeze(1)), x], dim=1)"


def softmax_rows(length: int) -> Case:
    return of_map(f"softmax over rows of {length}", "F.softmax(x, -1)", 2**28 // length, length)


CUBE = (128, 4096, 4095)
RMS = "torch.rsqrt(torch.mean(x * x, 1, keepdim=True) + 1e-5)"
CHANNELS = (112, 64, 512, 512)
AXES = {"dim 1": "1", "the last": "-1", "all": ""}
FOLDS = {"sum": "x.sum({})", "mean": "x.mean({})", "max": "x.amax({})", "argmax": "x.argmax({})"}


def fold(what: str, where: str) -> Case:
    left = {"dim 1": 1 / CUBE[1], "the last": 1 / CUBE[2], "all": 0.0}[where]
    wide = 2 if what == "argmax" else 1  # places are int64
    text = FOLDS[what].format(AXES[where])
    return Case(f"{what} over {where}", text, CUBE, results=wide * left)


LINE, PLANE, CUBES = (64, 128, 32768), (64, 64, 256, 256), (16, 32, 64, 64, 128)


def pool(name: str, result: str, shape: tuple[int, ...], *steps: int) -> Case:
    """Windows `steps` apart along the last axes, as many as there are elements if they are 1."""
    return Case(name, f"F.{result}", shape, results=1 / math.prod(steps))


def loss(name: str, result: str, *shape: int, operands: tuple[str, ...]) -> Case:
    return Case(name, result, shape, operands)


CASES = (
    of_map("softmax 4096x393216", "F.softmax(x, -1)", 4096, 393216),
    of_map("log-softmax 4096x393216", "F.log_softmax(x, -1)", 4096, 393216),
    *(softmax_rows(length) for length in (128, 1024, 4096, 32768)),
    of_map(
        "layer norm over 64x256x256, batch 16",
        "self.norm(x)",
        *(16, 64, 256, 256),
        init="self.norm = nn.LayerNorm((64, 256, 256))",
    ),
    of_map(
        "layer norm over 4096, 65536 rows",
        "self.norm(x)",
        *(65536, 4096),
        init="self.norm = nn.LayerNorm(4096)",
    ),
    of_map(
        "RMS norm over dim 1 of 112x64x512x512",
        "x / torch.sqrt(torch.mean(x.square(), dim=1, keepdim=True) + 1e-5)",
        *CHANNELS,
    ),
    of_map(
        "group norm, 8 groups, of 112x64x512x512",
        "self.norm(x)",
        *CHANNELS,
        init="self.norm = nn.GroupNorm(8, 64)",
    ),
    of_map("RMS norm of rows of 2097152", f"x * {RMS}", 896, 2**21),
    of_map("rows of 1048576 over their largest", "x / x.abs().amax(1, keepdim=True)", 1792, 2**20),
    of_map("instance norm of 112x64x512x512", "F.instance_norm(x)", *CHANNELS),
    *(fold(what, where) for where in AXES for what in FOLDS),
    loss("MSE", "F.mse_loss(x, y)", 32768, 32768, operands=(NORMAL, POSITIVE)),
    loss("hinge", "torch.clamp(1 - x * y, min=0).mean()", 32768, 32768, operands=(NORMAL, SIGN)),
    loss(
        "KL",
        "F.kl_div(torch.log(x), y, reduction='batchmean')",
        *(32768, 16384),
        operands=(POSITIVE, POSITIVE),
    ),
    Case(
        "cross-entropy 32768x4096",
        "F.cross_entropy(x, y)",
        (32768, 4096),
        beside=("torch.randint(4096, ({rows},), device='{device}')",),
    ),
    loss(
        "cosine",
        "(1 - F.cosine_similarity(x, y, dim=1)).mean()",
        *(32768, 16384),
        operands=(NORMAL, NORMAL),
    ),
    loss(
        "triplet",
        "F.triplet_margin_loss(x, y, z)",
        *(32768, 16384),
        operands=(NORMAL, NORMAL, NORMAL),
    ),
    pool("max pool 1-D, 2", "max_pool1d(x, 2)", LINE, 2),
    pool("max pool 1-D, 8", "max_pool1d(x, 8)", LINE, 8),
    pool("max pool 1-D, 4 dilated by 3", "max_pool1d(x, 4, 2, 2, 3)", LINE, 2),
    pool("max pool 2-D, 2", "max_pool2d(x, 2)", PLANE, 2, 2),
    pool("max pool 2-D, 3, stride 2", "max_pool2d(x, 3, 2, 1)", PLANE, 2, 2),
    pool("max pool 2-D, 3, stride 1", "max_pool2d(x, 3, 1, 1)", PLANE, 1),
    pool("max pool 2-D, 4 dilated by 2", "max_pool2d(x, 4, 2, 2, 2)", PLANE, 2, 2),
    pool("max pool 2-D, 8", "max_pool2d(x, 8)", PLANE, 8, 8),
    pool("max pool 3-D, 2", "max_pool3d(x, 2)", CUBES, 2, 2, 2),
    pool("max pool 3-D, 3, stride 2", "max_pool3d(x, 3, 2, 1)", CUBES, 2, 2, 2),
    pool("max pool 3-D, 4 dilated by 2", "max_pool3d(x, 4, 2, 2, 2)", CUBES, 2, 2, 2),
    pool("max pool 2-D of a ReLU", "max_pool2d(F.relu(x + 0.5), 2)", PLANE, 2, 2),
    pool("average pool 2-D, 3, stride 2", "avg_pool2d(x, 3, 2, 1)", PLANE, 2, 2),
    pool("average pool 2-D, 2", "avg_pool2d(x, 2)", PLANE, 2, 2),
    scan("cumsum", "torch.cumsum(x, 1)"),
    scan("cumsum, reversed", "torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])"),
    scan("cumsum, exclusive", f"torch.cumsum({BEHIND_ZERO}[:, :-1], 1)"),
    scan("cumsum, exclusive, of a row less", f"torch.cumsum({BEHIND_ZERO}[:-1], 1)"),
    scan("cumsum, masked", "torch.cumsum(x * y, 1)", MASK),
    scan("cumprod", "torch.cumprod(x, 1)"),
    scan("cummax", "torch.cummax(x, 1)[0]"),
    scan("logcumsumexp", "torch.logcumsumexp(x, 1)"),
    of_map("cumsum over dim 1 of 128x4096x4095", "torch.cumsum(x, 1)", *CUBE),
    of_map("cumsum over dim 0 of 32768x32768", "torch.cumsum(x, 0)", 32768, 32768),
    of_map("cumsum of 4 rows of 2^28", "torch.cumsum(x, 1)", 4, 2**28),
    of_map("cumsum of 64 rows of 2^22", "torch.cumsum(x, 1)", 64, 2**22),
    of_map("cumsum of a tensor of one axis, 2^26", "torch.cumsum(x, 0)", 2**26),
    Case("variance of a large mean", "x.var(-1)", (65536, 4096), (FAR_OFF,), results=1 / 4096),
)


@dataclass(frozen=True)
class Made:
    """A model file, its emitted file, and the plan, a line a group."""

    model: Path
    new: Path
    plan: tuple[str, ...]


def main(
    only: Annotated[str, typer.Option(help="Only cases whose name has one of a|b|c in it.")] = "",
    target: Annotated[str, typer.Option(help="cuda or cpu; what is there.")] = "auto",
    scale: Annotated[float, typer.Option(help="Of axis 0 of every operand.")] = 1.0,
    baselines: Annotated[str, typer.Option(help="Of compile and autotune.")] = "compile",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of each case.")] = 0.2,
    seconds: Annotated[float, typer.Option(help="No case begins after so many.")] = math.inf,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/reductions-<device>.json; a case that failed says why."""
    start = time.perf_counter()
    device = device_of(target)
    on_cpu = device == "cpu"
    chosen = [case for case in CASES if any(part in case.name for part in only.split("|"))]
    cases = [case.scaled(scale) for case in chosen]
    run = {**run_of_today(on_cpu), "scale": scale}
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"reductions-{slug(device_name(on_cpu))}.json"
    with tempfile.TemporaryDirectory() as folder:
        made = made_side_by_side(cases, device, Path(folder))
        print(f"compiled and built in {time.perf_counter() - start:.0f} s", flush=True)
        for case, future in zip(cases, made, strict=True):
            if time.perf_counter() - start > seconds:
                break
            result = outcome(case, future, device, baselines, budget_s)
            print(line_of(result), flush=True)
            keep(path, run, run, result, [each.name for each in CASES])
    print(f"written to {path}, {time.perf_counter() - start:.0f} s")


def device_of(target: str) -> str:
    if target == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cpu" if target == "cpu" else "cuda"


def made_side_by_side(cases: Sequence[Work], device: str, folder: Path) -> list[Future[Made]]:
    """Emitted files in `folder`, with their kernels built; all processes have ended."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(WORKERS, len(cases)), mp_context=spawn) as pool:
        files = [folder / f"reduction{i}.py" for i in range(len(cases))]
        pairs = zip(cases, files, strict=True)
        made = [pool.submit(_make, case.source(device), file, device) for case, file in pairs]
    return made


def _make(source: str, model: Path, device: str) -> Made:
    """Writes the model file and its emitted file and imports that."""
    model.write_text(source)
    compiled = compile_file(model, Options(target=device))
    new = model.with_stem(f"{model.stem}_new")
    new.write_text(compiled.text)
    _import_built(new)
    if device == "cuda":
        torch.cuda.empty_cache()
    return Made(model, new, tuple(f"{row.kind}: {row.reason}" for row in compiled.main_rows))


def _import_built(new: Path) -> Any:
    module = import_file(new, f"{new.stem}_module")
    support = getattr(module.ModelNew, "_opweld", None)
    if support is None or not support.devices:
        raise RuntimeError("the kernels were not built, or there are none")
    return module


def outcome(
    case: Work, made: Future[Made], device: str, baselines: str, budget_s: float
) -> dict[str, Any]:
    """The figures of a case, or its problem: the others are to run all the same."""
    head = {"name": case.name, "shape": case.shape, "num_bytes": case.num_bytes}
    try:
        return {**head, **_measured(case, made, device, baselines, budget_s)}
    except Exception as problem:
        return {**head, "problem": f"{type(problem).__name__}: {problem}"[:2000]}
    finally:
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()


def _measured(
    case: Work, made: Future[Made], device: str, baselines: str, budget_s: float
) -> dict[str, Any]:
    files = made.result()
    original = import_file(files.model, f"{files.model.stem}_original")
    torch.manual_seed(0)
    inputs = original.get_inputs()
    eager = original.Model().eval().to(device)
    ours = _import_built(files.new).ModelNew().eval().to(device)
    ours.load_state_dict(eager.state_dict())
    ways: dict[str, Callable[[], Any]] = {
        "eager_ms": lambda: eager(*inputs),
        "opweld_ms": lambda: ours(*inputs),
        "copy_ms": _copy(case.num_bytes, device),
    }
    with torch.no_grad():
        errors = {**_errors(eager, ours, inputs), **runs_that_differ(lambda: ours(*inputs))}
        if refused := why_refused(errors):
            return {**errors, "problem": refused, "plan": files.plan}
        compiled, failed = compiled_ways(eager, inputs, baselines)
        times = time_interleaved({**ways, **compiled}, torch.device(device), budget_s)
    medians = {name: samples.median for name, samples in times.items()}
    return {
        **medians,
        "spread": {name: [each.p10, each.p90] for name, each in times.items()},
        "share_of_copy": medians["copy_ms"] / medians["opweld_ms"],
        "copy_gbps": case.num_bytes / medians["copy_ms"] / 1e6,
        "speed_up": {
            name[:-3]: medians[name] / medians["opweld_ms"] for name in ("eager_ms", *compiled)
        },
        **errors,
        **failed,
        "plan": files.plan,
    }


def _copy(num_bytes: int, device: str) -> Callable[[], Any]:
    """Half of the bytes are read, half are written."""
    source = torch.zeros(max(num_bytes // 2, 1), dtype=torch.uint8, device=device)
    to = torch.zeros_like(source)
    return lambda: to.copy_(source)


def _errors(eager: torch.nn.Module, ours: torch.nn.Module, inputs: list[Any]) -> dict[str, Any]:
    """Of the first rows, against float64; of places, how many differ from eager's."""
    rows = max(PIECE_ELEMS // inputs[0][0].numel(), LEAST_BATCH)
    piece = [x[:rows] for x in inputs]
    new, old = ours(*piece), eager(*piece)
    if not old.is_floating_point():
        return {"unequal": int((new != old).sum())}
    wide = (x.double() if x.is_floating_point() else x for x in piece)
    exact = copy.deepcopy(eager).double()(*wide)
    sums = ErrorSums(old.dtype)
    sums.add(new, old, exact)
    figures = sums.figures()
    return {
        "error": {"rms": figures.rms, "max": figures.max},
        "eager_error": {"rms": figures.eager_rms, "max": figures.eager_max},
        "half_ulp_rms": figures.half_ulp_rms,
        "grade": grade(figures),
    }


def line_of(result: dict[str, Any]) -> str:
    if "problem" in result:
        return f"{result['name']}: {result['problem'][:300]}"
    ways = ("eager", "compile", "autotune", "copy")
    times = ", ".join(f"{w} {result[f'{w}_ms']:.4g}" for w in ways if f"{w}_ms" in result)
    speed_ups = ", ".join(f"{value:.2f}x {name}" for name, value in result["speed_up"].items())
    if "grade" in result:
        rms, eager = result["error"]["rms"], result["eager_error"]["rms"]
        error = f"rms error {rms:.2g}, eager {eager:.2g}, grade {result['grade']}"
    else:
        error = f"{result['unequal']} places differ"
    share = 100 * result["share_of_copy"]
    return (
        f"{result['name']}: {result['opweld_ms']:.4g} ms, {times}: {share:.0f} % of copy, "
        f"{speed_ups} | {error} | {len(result['plan'])} groups"
    )


if __name__ == "__main__":
    typer.run(main)
