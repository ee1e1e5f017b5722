"""Prints a run of one of the benchmarks as Markdown, or writes it into a page.

There it goes between two marks.

python benchmarks/table.py benchmarks/results/gpu-nvidia-h200.json
python benchmarks/table.py benchmarks/results/gpu-nvidia-h200.json --into benchmarks/README.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from benchmarks.refusal import fault_of, why_refused  # noqa: E402
from benchmarks.text_table import (  # noqa: E402
    algebra,
    any_models,
    bare_convolutions,
    network_speed,
    runs,
    text_and_time,
    training,
    transposes,
)


def main(
    result: Annotated[Path, typer.Argument(help="A JSON file of one of them.")],
    into: Annotated[Path | None, typer.Option(help="A page with the marks.")] = None,
) -> None:
    """The table of one run."""
    account = json.loads(result.read_text())
    text = text_of(account)
    if into is None:
        print(text)
        return
    into.write_text(between_marks(into.read_text(), result.stem, text))


STAGES = ("capture", "plan", "build", "verify", "measure")


def head_of(account: dict[str, Any], units: str, heads: tuple[str, ...]) -> list[str]:
    """What a table was measured on and in, and its first two rows."""
    measured = f"{account['device']}, {account['date']}, torch {account['versions']['torch']}"
    return [
        f"{measured}, `{account['command']}`. {units}",
        "",
        line(heads),
        "|---" * len(heads) + "|",
    ]


def first_contact(account: dict[str, Any]) -> list[str]:
    """Seconds of commands, whole and by stage."""
    units = "Seconds; what a stage lacks is the start of the process."
    lines = head_of(account, units, ("command", "in all", *STAGES))
    for case in account["cases"]:
        if refused := why_refused(case):
            lines.append(line((case["name"], refused, *[""] * len(STAGES))))
            continue
        spent = [case["stages"].get(stage) for stage in STAGES]
        told = ["" if each is None else f"{each:.1f}" for each in spent]
        lines.append(
            line(
                (
                    case["name"],
                    f"{case['seconds']:.2g}" if case["seconds"] < 1 else f"{case['seconds']:.1f}",
                    *told,
                )
            )
        )
    return lines


def against_itself(account: dict[str, Any]) -> list[str]:
    """The speeds that copies of a model are said to have, which should be 1."""
    heads = ("model", "eager, us", "speeds", "called slower", "called faster")
    lines = head_of(account, "Speeds are eager's time over the copy's.", heads)
    for case in account["cases"]:
        speeds = ", ".join(f"{speed:.2f}" for speed in sorted(case["speeds"]))
        called = case["slower"], case.get("faster", "not kept")
        lines.append(line((case["name"], f"{case['eager_us']:.0f}", speeds, *map(str, called))))
    return lines


def backends(account: dict[str, Any]) -> list[str]:
    """Both backends of torch.compile beside eager; a result of another grade or that varies is
    refused.
    """
    units = "Medians in ms; errors are the largest against float64, opweld's over eager's."
    ours = ("times eager", "times inductor", "graphs with kernels", "error")
    heads = ("model", "eager", "inductor", "opweld", *ours)
    lines = head_of(account, units, heads)
    for case in account["cases"]:
        refused = why_refused(case) or ("wrong kernels" if case.get("warnings") else None)
        if refused:
            lines.append(line((case["name"], refused, *[""] * (len(heads) - 2))))
            continue
        eager, inductor, own = (case[f"{side}_ms"] for side in ("eager", "inductor", "opweld"))
        times = f"{eager:.3g}", f"{inductor:.3g}", f"{own:.3g}"
        ratios = f"{eager / own:.2f}", f"{inductor / own:.2f}"
        graphs = f"{case['with_kernels']} of {case['graphs']}"
        error = f"{case['opweld_error'] / case['eager_error']:.2f}"
        lines.append(line((case["name"], *times, *ratios, graphs, error)))
    return lines


BY_SUITE = {
    "algebra": algebra,
    "any-model": any_models,
    "backend": backends,
    "first-contact": first_contact,
    "judged-against-itself": against_itself,
    "text-and-time": text_and_time,
    "network-speed": network_speed,
    "training": training,
    "transposes": transposes,
    "bare-convolutions": bare_convolutions,
}


def text_of(account: dict[str, Any]) -> str:
    """The table of the script that made the run."""
    made = BY_SUITE.get(account.get("suite", ""))
    if made is not None:
        return "\n".join(made(account))
    if "copy_gbps" in account:
        return products(account)
    if "flops" in account["cases"][0]:
        return attention(account)
    if "scale" in account:
        return shares_of_copy(account)
    return reductions(account) if "rms_error" in account["cases"][0] else table(account)


def table(account: dict[str, Any]) -> str:
    """The cases side by side, and what they were measured on."""
    cases = account["cases"]
    hand = ("by hand",) if any("by_hand" in case for case in cases) else ()
    new = "by hand" if account.get("suite") == "hand" else "ModelNew"
    heads = ("model", "eager", "torch.compile", *hand, new, "limit", "share of limit")
    units = "Medians in ms; error is the largest against float64."
    lines = head_of(account, units, (*heads, "error, eager's"))
    return "\n".join([*lines, *(row(case, bool(hand)) for case in cases)])


WAYS = ("eager", "torch.compile", "tuned", "ModelNew")


def products(account: dict[str, Any]) -> str:
    """The products side by side: of some more than one was measured, the last one counts."""
    shares = ("TFLOP/s", "share of copy", "error")
    lines = [
        f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}. Medians in "
        "ms; tuned is torch.compile's max-autotune; TFLOP/s are of the product's own operations, "
        "the share is that of the bytes that must move at the speed of a copy, the error ours over "
        "eager's, root mean square against float64.",
        "",
        line(("product", *WAYS, "times", *shares)),
        "|---" * 9 + "|",
    ]
    return "\n".join([*lines, *map(product_row, account["cases"])])


def attention(account: dict[str, Any]) -> str:
    """The attention of attention.py side by side."""
    lines = [
        f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}. Medians in "
        "ms; tuned is torch.compile's max-autotune; TFLOP/s are of the two products, the error is "
        "ours over eager's, root mean square against float64.",
        "",
        line(("attention", *WAYS, "times", "TFLOP/s", "error")),
        "|---" * 8 + "|",
    ]
    return "\n".join([*lines, *map(attention_row, account["cases"])])


def attention_row(case: dict[str, Any]) -> str:
    if refused := why_refused(case):
        return line((case["name"], refused, *[""] * 6))
    return line(
        (
            case["name"],
            f"{case['eager_ms']:.4g}",
            *of_torch_compile(case),
            f"**{case['opweld_ms']:.4g}**",
            f"{case['eager_ms'] / case['opweld_ms']:.2f}",
            f"{case['flops'] / case['opweld_ms'] / 1e9:.0f}",
            error_ratio(case),
        )
    )


def shares_of_copy(account: dict[str, Any]) -> str:
    """The reductions and windows of reductions.py side by side."""
    lines = [
        f"{account['device']}, torch {account['versions']['torch']}, {runs(account)}. Medians in "
        "ms; tuned is torch.compile's max-autotune; the share is that of a copy of the bytes that "
        "must move, the error is ours over eager's, root mean square against float64.",
        "",
        line(("work", *WAYS, "share of copy", "error")),
        "|---" * 7 + "|",
    ]
    return "\n".join([*lines, *map(share_row, account["cases"])])


def share_row(case: dict[str, Any]) -> str:
    if refused := why_refused(case):
        return line((case["name"], refused, *[""] * 5))
    return line(
        (
            case["name"],
            f"{case['eager_ms']:.4g}",
            *of_torch_compile(case),
            f"**{case['opweld_ms']:.4g}**",
            f"{100 * case['share_of_copy']:.0f} %",
            error_ratio(case),
        )
    )


def error_ratio(case: dict[str, Any]) -> str:
    """Of places, how many differ."""
    if "unequal" in case:
        return "same places" if not case["unequal"] else f"{case['unequal']} places differ"
    ours, eager = case["error"]["rms"], case["eager_error"]["rms"]
    return f"{ours / eager:.2f}" if eager else ("exact" if not ours else f"{ours:.2g}")


def reductions(account: dict[str, Any]) -> str:
    """The reductions side by side, on all threads."""
    most = max(case["threads"] for case in account["cases"])
    lines = [
        f"{account['device']}, {account['date']}, torch {account['versions']['torch']}, "
        f"`{account['command']}`, {most} threads. Medians in ms; the error is ours over eager's, "
        "root mean square against float64.",
        "",
        line(("reduction", "eager", "torch.compile", "ModelNew", "error")),
        "|---" * 5 + "|",
    ]
    rows = (reduction_row(case) for case in account["cases"] if case["threads"] == most)
    return "\n".join([*lines, *rows])


def reduction_row(case: dict[str, Any]) -> str:
    if refused := why_refused(case):
        return line((case["name"].rpartition(", ")[0], refused, *[""] * 3))
    ours, eager = (case["rms_error"][side] for side in ("opweld", "eager"))
    return line(
        (
            case["name"].rpartition(", ")[0],
            f"{case['eager_ms']:.3g}",
            f"{case['compile_ms']:.3g}",
            f"**{case['opweld_ms']:.3g}**",
            f"{ours / eager:.2f}" if eager else ("exact" if not ours else f"{ours:.2g}"),
        )
    )


def product_row(case: dict[str, Any]) -> str:
    if refused := why_refused(case):
        return line((case["name"], refused, *[""] * 7))
    eager, new, error = case["eager_ms"], case["opweld_ms"], case["error"]
    return line(
        (
            case["name"],
            f"{eager:.4g}",
            *of_torch_compile(case),
            f"**{new:.4g}**",
            f"{eager / new:.2f}",
            f"{case['tflops']:.0f}",
            f"{100 * case['share_of_copy']:.0f} %",
            f"{error['rms'] / case['eager_error']['rms']:.2f}" if error else "",
        )
    )


def of_torch_compile(case: dict[str, Any]) -> tuple[str, ...]:
    """Its times as it is and tuned, where they were taken."""
    return tuple(f"{case[way]:.4g}" if way in case else "" for way in ("compile_ms", "autotune_ms"))


def row(case: dict[str, Any], hand: bool) -> str:
    if refused := why_refused(case):
        return line((case["name"], refused, *("",) * (5 + hand)))
    timing = case["timing"]
    new = timing["opweld_ms"]["median"]
    cells = (
        case["name"],
        median(timing["eager_ms"]),
        median(timing["compile_ms"]),
        *((by_hand(case),) if hand else ()),
        f"**{new:.4g}**",
        f"{timing['limit_ms']:.4g}",
        f"{100 * timing['limit_ms'] / new:.0f} %",
        errors(case),
    )
    return line(cells)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def by_hand(case: dict[str, Any]) -> str:
    """The time of the hand-written file; why it has none."""
    account = case.get("by_hand")
    if account is None:
        return ""
    if fault := fault_of(account):
        return fault
    return median(account["timing"]["opweld_ms"]) if account.get("timing") else "failed"


def median(samples: dict[str, float] | None) -> str:
    return f"{samples['median']:.4g}" if samples else "failed"


def errors(case: dict[str, Any]) -> str:
    """The largest errors in the check with the model's own inputs."""
    for check in case["verdict"]["checks"]:
        if check.get("error_vs_f64"):
            return f"{check['error_vs_f64']['max']:.2g}, {check['eager_error_vs_f64']['max']:.2g}"
    return "exact"


def between_marks(page: str, name: str, text: str) -> str:
    """`page` with what stands between the marks of `name` replaced.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- {name} begins -->", f"<!-- {name} ends -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no marks {begin} and {end}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    typer.run(main)
