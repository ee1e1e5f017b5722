"""The tables of text_and_time.py and of network_speed.py, for table.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.refusal import fault_of, why_refused

PARTS = {
    "original": "original",
    "kernels": "kernels",
    "host": "host",
    "python": "Python",
    "support_cpp": "C++ support",
    "support_python": "Python support",
}
STEPS = ("capture", "plan", "emit", "build")


def text_and_time(account: dict[str, Any]) -> list[str]:
    """The lines of each file by what they are, and the seconds of each step."""
    cases = account["cases"]
    by_compile = any("compile" in case["seconds"] for case in cases)
    compiled = (f"torch.compile, {where(account)}",) if by_compile else ()
    heads = ("model", "lines", "at most", *PARTS.values(), "kernels made", *STEPS)
    heads = (*heads, "emit + build", "at most, s", *compiled)
    work = ("emit + build", *compiled)
    heads = (*heads, *(f"{name}, processor" for name in work))
    loads = [case["load_average"] for case in cases]
    said = (
        f"Kernels for {account['target']}, on {account['device']}, torch "
        f"{account['versions']['torch']}, {runs(account)}. Lines of the emitted file and what they "
        f"are; seconds by the clock, and those of processors, beside a load average of "
        f"{min(loads):.1f} to {max(loads):.1f}."
    )
    return [said, "", *table(heads, [text_cells(case, by_compile) for case in cases])]


def where(account: dict[str, Any]) -> str:
    return "CPU" if account["target"] == "cpu" else "GPU"


def text_cells(case: dict[str, Any], by_compile: bool) -> list[str]:
    lines, seconds, at_most = case.get("lines", {}), case["seconds"], case["at_most"]
    emitted = seconds.get("whole")
    return [
        case["name"],
        f"**{lines['whole']}**" if lines else ended(case, "emit"),
        number(at_most["lines"]),
        *(number(lines.get(part)) for part in PARTS),
        number(case.get("kernels")),
        *(spent(case, step, "emit" if step != "build" else "build") for step in STEPS),
        f"{emitted + seconds['build']:.1f}" if emitted and "build" in seconds else "",
        number(at_most["seconds"]),
        *([spent(case, "compile", "compile")] if by_compile else []),
        *processor_cells(case.get("processor", {}), by_compile),
    ]


def processor_cells(spent_s: dict[str, float], by_compile: bool) -> list[str]:
    """Seconds of processors, which other work on the machine lengthens less."""
    built = f"{spent_s['emit'] + spent_s['build']:.1f}" if "build" in spent_s else ""
    compiled = f"{spent_s['compile']:.1f}" if "compile" in spent_s else ""
    return [built, *([compiled] if by_compile else [])]


def spent(case: dict[str, Any], name: str, step: str) -> str:
    seconds = case["seconds"].get(name)
    return ended(case, step) if seconds is None else f"{seconds:.1f}"


def ended(case: dict[str, Any], step: str) -> str:
    """Why a step has no figure."""
    problem = case["problems"].get(step)
    if problem is None:
        return "not run"
    return f"over {case['limit_s']:g} s" if "time limit" in problem else "failed"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def network_speed(account: dict[str, Any]) -> list[str]:
    """Milliseconds of the large models, microseconds of the host for the small ones."""
    kinds: dict[str, list[dict[str, Any]]] = {
        "speed": [],
        "convolutions": [],
        "networks": [],
        "steps": [],
        "host": [],
    }
    for case in account["cases"]:
        kinds[case["kind"]].append(case)
    said = f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}."
    text, heads = [said], tuple[str, ...]()
    if kinds["speed"]:
        heads = ("model", "eager", "torch.compile", "ModelNew", "times", "error", "grade")
        text += ["", "Medians in ms of the device; the error is the largest of ours over eager's."]
        rows = [cells for case in kinds["speed"] for cells in (speed_cells(case), *backward(case))]
        text += ["", *table(heads, rows)]
    for kind, title in IN_BOTH_LAYOUTS.items():
        if kinds[kind]:
            text += ["", *convolutions(kinds[kind], title)]
    if kinds["steps"]:
        text += [
            "",
            "Medians in ms of forward and backward, of files of `--training`; errors are distances"
            " of all gradients from those of a float64 run, over their norm: ours, eager's.",
        ]
        heads = ("model", "eager", CHANNELS_LAST, "torch.compile", "ModelNew", "times")
        text += ["", *table((*heads, "errors"), map(step_cells, kinds["steps"]))]
    recorded = [case for case in account["cases"] if "ms_recorded" in case and not fault_of(case)]
    if recorded:
        text += ["", "Medians in ms of forwards whose gradients are recorded: without `no_grad`."]
        heads = ("model", "eager", CHANNELS_LAST, "torch.compile", "ModelNew", "times")
        text += ["", *table(heads, map(recorded_cells, recorded))]
    if kinds["host"]:
        ways = ("eager", "torch.compile", "ModelNew")
        heads = ("network", *ways, *(f"{way}, gradients" for way in ways))
        text += ["", "Microseconds of the host for a forward; with gradients, and a backward."]
        text += ["", *table(heads, [host_cells(case) for case in kinds["host"]])]
    return text


def bare_convolutions(account: dict[str, Any]) -> list[str]:
    """Single convolutions beside PyTorch's and the least that they can take."""
    ways = ("eager_ms", "channels_last_ms", "compile_ms")
    heads = ("convolution", "floor", "eager", CHANNELS_LAST, "torch.compile", "ModelNew", "times")

    def cells(case: dict[str, Any]) -> list[str]:
        if refused := why_refused(case):
            return [case["name"], refused, *[""] * 7]
        errors = case["error"]
        permitted = max(errors["eager_rms"], errors["tf32_rms"])
        return [
            case["name"],
            f"{case['floor_ms']:.4f}",
            *(f"{case[way]:.4f}" if way in case else "" for way in ways),
            f"**{case['opweld_ms']:.4f}**",
            f"{case['eager_ms'] / case['opweld_ms']:.2f}",
            f"{errors['rms'] / permitted:.2f}",
            case["grade"],
        ]

    said = f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}."
    told = (
        "Medians in ms; the floor is what moving each tensor once takes at a copy's speed, or the "
        "operations at 700 TFLOP/s; the error is over that of eager or, where it is larger, of "
        "operands rounded to TF32."
    )
    rows = map(cells, account["cases"])
    return [said, "", told, "", *table((*heads, "error", "grade"), rows)]


def transposes(account: dict[str, Any]) -> list[str]:
    """Copies into another order and what is computed on the way."""
    heads = ("work", "ours", "contiguous", "copy", "share of copy")

    def cells(case: dict[str, Any]) -> list[str]:
        if refused := why_refused(case):
            return [case["name"], refused, *[""] * 3]
        return [
            case["name"],
            f"**{1e3 * case['opweld_ms']:.1f}**",
            f"{1e3 * case['contiguous_ms']:.1f}",
            f"{1e3 * case['copy_ms']:.1f}",
            f"{100 * case['share_of_copy']:.0f} %",
        ]

    said = f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}."
    told = (
        "Medians in microseconds; contiguous is torch's, of x alone; the copy moves as many bytes."
    )
    note = [account["note"]] if "note" in account else []
    return [said, *note, "", told, "", *table(heads, [cells(case) for case in account["cases"]])]


def algebra(account: dict[str, Any]) -> list[str]:
    """Models whose mathematics changes, beside what the original and the rewritten one need."""
    ways = ("model", "eager", "torch.compile", "opweld", "times torch.compile")
    heads = (*ways, "floor", "floor, rewritten", "error, eager's", "error, opweld's")

    def cells(case: dict[str, Any]) -> list[str]:
        times = [case[f"{way}_ms"] for way in ("eager", "compile", "opweld")]
        floors = [case["floor_ms"], case["rewritten_floor_ms"]]
        ratio = f"{case['compile_ms'] / case['opweld_ms']:.1f}"
        shown = [*(f"{each:.3g}" for each in times), ratio, *(f"{each:.3g}" for each in floors)]
        errors = [f"{case[f'{way}_error']:.1e}" for way in ("eager", "opweld")]
        return [case["name"].replace("_", " "), *shown, *errors]

    said = f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}."
    told = "Milliseconds; floors from the speed of a copy and of a product; errors are root mean"
    told += " squares against float64, relative to the results."
    return [said, "", told, "", *table(heads, [cells(case) for case in account["cases"]])]


def training(account: dict[str, Any]) -> list[str]:
    """Steps of training, and how exact their gradients are."""
    phases = {"forward": "forward", "step": "and backward", "with_optimizer": "and AdamW"}
    sides = [side for side in WAYS if f"{side}_step_ms" in account["cases"][0]]
    heads = ("model", *(f"{told}, {side}" for told in phases.values() for side in sides))
    heads = (*heads, "times torch.compile", "error, eager's", "error, opweld's")

    def cells(case: dict[str, Any]) -> list[str]:
        times = [f"{case[f'{side}_{phase}_ms']:.3g}" for phase in phases for side in sides]
        step = case.get("compile_step_ms")
        ratio = f"{step / case['opweld_step_ms']:.2f}" if step else ""
        found = [case[f"{side}_error"] for side in ("eager", "opweld")]
        errors = ["-" if error is None else f"{error:.1e}" for error in found]
        return [case["name"].replace("_", " "), *times, ratio, *errors]

    said = f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}."
    told = "Milliseconds; errors are distances of all gradients from those of a float64 run, over"
    told += " their norm; the ratio is that of forward and backward."
    for note in dict.fromkeys(case["note"] for case in account["cases"] if "note" in case):
        told += f" No errors (-): {note}."
    return [said, "", told, "", *table(heads, [cells(case) for case in account["cases"]])]


WAYS = ("eager", "compile", "opweld")
CHANNELS_LAST = "eager, channels last"
BREAKDOWN = ("kernels_us", "host_us")
IN_BOTH_LAYOUTS = {
    "convolutions": "convolutions with what is behind them",
    "networks": "networks of convolutions, in eval mode where no other is named",
}


def speed_cells(case: dict[str, Any]) -> list[str]:
    if "problem" in case:
        return [case["name"], case["problem"].partition(":")[0], *[""] * 5]
    # A wrong result, or one that differs from call to call, has no speed.
    fault = fault_of(case)
    refused = f"no speed: {fault}" if fault else ""
    new = case["ms"]["opweld"]
    ours = [refused, ""] if refused else [f"**{new:.4g}**", f"{case['ms']['eager'] / new:.2f}"]
    beside = [figure(case["ms"], way, 4) for way in WAYS[:2]]
    errors = case["error"]
    return [case["name"], *beside, *ours, number_ratio(errors), errors["grade"]]


def convolutions(cases: list[dict[str, Any]], title: str) -> list[str]:
    """Times, and where it is known what the device and the host take of them."""
    ways = ("eager", CHANNELS_LAST, "torch.compile", "ModelNew")
    heads: tuple[str, ...] = ("model", *ways, "times", "error", "grade")
    said = f"Medians in ms of {title}"
    rows = [convolution_cells(case) for case in cases]
    if any(BREAKDOWN[0] in case for case in cases):
        said += (
            "; behind them microseconds of eager's kernels and of ours by PyTorch's profiler, and"
            " of the host until a call returns"
        )
        heads = (*heads, "kernels, us", "host, us")
        rows = [row + breakdown_cells(case) for row, case in zip(rows, cases, strict=True)]
    return [f"{said}.", "", *table(heads, rows)]


def convolution_cells(case: dict[str, Any]) -> list[str]:
    name, eager, *others = speed_cells(case)
    times = case.get("ms", {})  # there is no such layout of one axis of space
    other_layout = figure(times, CHANNELS_LAST, 4) if CHANNELS_LAST in times else ""
    return [name, eager, other_layout, *others]


def breakdown_cells(case: dict[str, Any]) -> list[str]:
    """Of the kernels and of the host, eager's and ours; nothing of a wrong result."""
    if without_times(case) or BREAKDOWN[0] not in case:
        return [""] * len(BREAKDOWN)
    return [f"{case[part]['eager']:.0f} / {case[part]['opweld']:.0f}" for part in BREAKDOWN]


def without_times(case: dict[str, Any]) -> list[str]:
    """The cells of a row that has no times, with the reason; none where it has."""
    if "problem" in case:
        return [case["name"], case["problem"].partition(":")[0], *[""] * 5]
    fault = fault_of(case)
    return [case["name"], f"no times: {fault}", *[""] * 5] if fault else []


def recorded_cells(case: dict[str, Any]) -> list[str]:
    times = case["ms_recorded"]
    other_layout = figure(times, CHANNELS_LAST, 4) if CHANNELS_LAST in times else ""
    beside = [figure(times, "eager", 4), other_layout, figure(times, "compile", 4)]
    new = times["opweld"]
    return [case["name"], *beside, f"**{new:.4g}**", f"{times['eager'] / new:.2f}"]


def step_cells(case: dict[str, Any]) -> list[str]:
    if refused := without_times(case):
        return refused
    times, errors = case["ms_backward"], case["gradients"]
    other_layout = figure(times, CHANNELS_LAST, 4) if CHANNELS_LAST in times else ""
    beside = [figure(times, "eager", 4), other_layout, figure(times, "compile", 4)]
    ours = [f"**{times['opweld']:.4g}**", f"{times['eager'] / times['opweld']:.2f}"]
    return [case["name"], *beside, *ours, f"{errors['opweld']:.2g}, {errors['eager']:.2g}"]


def backward(case: dict[str, Any]) -> list[list[str]]:
    """A row for the forward and the backward, where that was timed."""
    times = case.get("ms_backward")
    if not times or fault_of(case):
        return []
    ours = [f"**{times['opweld']:.4g}**", f"{times['eager'] / times['opweld']:.2f}"]
    beside = [figure(times, way, 4) for way in WAYS[:2]]
    return [[f"{case['name']}, with its backward", *beside, *ours, "", ""]]


def number_ratio(errors: dict[str, Any]) -> str:
    """The error over eager's or, so marked, over that of operands rounded to TF32."""
    ours, eager = errors["max"], errors["eager_max"]
    marked = " (TF32)" if errors.get("beside") == "TF32" else ""
    return f"{ours / eager:.2f}{marked}" if eager else ("exact" if not ours else f"{ours:.2g}")


def host_cells(case: dict[str, Any]) -> list[str]:
    if refused := without_times(case):
        return refused
    figures = [figure(case[kind], way, 4) for kind in ("no_grad_us", "grad_us") for way in WAYS]
    return [case["name"], *figures]


def figure(medians: dict[str, float], way: str, digits: int) -> str:
    value = f"{medians[way]:.{digits}g}" if way in medians else "failed"
    return f"**{value}**" if way == "opweld" else value


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def any_models(account: dict[str, Any]) -> list[str]:
    """What became of models of many fields: verdicts, or times beside eager and torch.compile."""
    judged = account["what"] == "judge"
    sizes = ", ".join(f"{name} {size}" for name, size in account["sizes"].items())
    measured = f"{account['device']}, {account['date']}, torch {account['versions']['torch']}"
    named = account["models"].items()
    heads: tuple[str, ...] = ("model", "field", "fused", "kernels", "lines")
    if judged:
        heads = (*heads, "seconds", "verdict")
        units = "seconds are those of `opweld optimize`."
        rows = [_judged_row(name, row) for name, row in named]
    else:
        times = ("eager", "torch.compile", "opweld", "times eager", "times torch.compile")
        heads = (*heads, "emit + build, s", *times)
        units = "Medians in ms, without gradients; each row was measured in one run."
        rows = [_timed_row(name, row) for name, row in named]
        rows.append(_means(account))
    lines = [f"{measured}, `{account['command']}`, {sizes}; {units}", ""]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _judged_row(name: str, row: dict[str, Any]) -> list[str]:
    figures = [str(row.get(key, "")) for key in ("kernels", "lines")]
    return [name, row["field"], row["status"], *figures, f"{row['seconds']:.0f}", row["verdict"]]


def _timed_row(name: str, row: dict[str, Any]) -> list[str]:
    if (why := _untimed(row)) is not None:
        return [name, row["field"], row["status"], why, *[""] * 7]
    spent = row["emit_s"] + row["build_s"]
    times = [row[f"{side}_ms"] for side in ("eager", "torch.compile", "opweld")]
    ratios = [f"{each / times[2]:.2f}" for each in times[:2]]
    figures = [str(row["kernels"]), str(row["lines"]), f"{spent:.0f}"]
    told = [f"{each:.3g}" for each in times]
    return [name, row["field"], row["status"], *figures, *told, *ratios]


def _untimed(row: dict[str, Any]) -> str | None:
    """Why a model has no figures: none were taken, or its calls gave other bits."""
    if "opweld_ms" not in row:
        return str(row.get("verdict", "not run")).partition(":")[0]
    return "equal calls differ" if row["equal"] is False else None


def _means(account: dict[str, Any]) -> list[str]:
    rows = [row for row in account["models"].values() if _untimed(row) is None]
    means = [
        math.exp(sum(math.log(row[f"{side}_ms"] / row["opweld_ms"]) for row in rows) / len(rows))
        for side in ("eager", "torch.compile")
    ]
    told = [f"geometric mean of {len(rows)}", *[""] * 8]
    return [*told, *(f"{mean:.2f}" for mean in means)]


def runs(account: dict[str, Any]) -> str:
    """The days and the commands that the cases are of."""
    every = dict.fromkeys(
        (case["run"]["date"], case["run"]["command"]) for case in account["cases"]
    )
    return "; ".join(f"{day} `{command}`" for day, command in every)
