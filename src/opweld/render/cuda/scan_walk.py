"""What the walks of all scans are given, of whole rows, of columns and of pieces."""

from __future__ import annotations

from dataclasses import replace

from ...ir.kernels.reduction import Scan
from .walk import Function


def steps(load: Function | None, functions: list[Function], any_lanes: bool = False) -> list[str]:
    """What a walk calls. `any_lanes`: a walk says of how many neighbours; kLanes elsewhere."""
    loaded = "return op::NoPacket();"
    if load:
        loaded = "return " + load.call(["row", "at"], 4).lstrip()
    scanned, after = functions
    asked = ""
    if any_lanes:
        asked = ", auto lanes"
        loaded = loaded.replace("<kLanes>", "<decltype(lanes)::kCount>")
        scanned, after = (replace(f, name=f.name.replace("<kLanes>", "")) for f in (scanned, after))
    return [
        f"  const auto load = [&](Index at{asked}) {{\n    {loaded}\n  }};",
        "  const auto scanned = [&](Index at, const auto& packet, auto& folds) {",
        scanned.call(["row", "at", "packet", "folds"], 4),
        "  };",
        "  const auto after = [&](Index at, const auto& packet, const auto& known) {",
        after.call(["row", "at", "packet", "known"], 4),
        "  };",
    ]


def ways(scan: Scan) -> str:
    """Whether it goes from the end, and whether an element knows only those before it."""
    return f"{'true' if scan.reverse else 'false'}, {'true' if scan.exclusive else 'false'}"
