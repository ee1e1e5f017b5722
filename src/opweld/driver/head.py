"""The first lines of an emitted file: what it is, and what was fused."""

from __future__ import annotations

from collections import Counter

from opweld import __version__
from opweld.emission.classes import submodules_of
from opweld.ir.contract import Capture, Submodule
from opweld.ir.original import Original, Part, bodies_of, forwards_of
from opweld.target import Target

AS_IT_IS = "No operation of it is fused: ModelNew is the original"
WITHOUT_GRADIENTS = (
    "Calls that ask for gradients run the original: torch.no_grad() runs the kernels, and\n"
    "--training makes some for gradients."
)


def title(original: Original, target: Target) -> str:
    return f"ModelNew for {original.file}, by opweld {__version__} for {target.name}."


def head_of(original: Original, target: Target, parts: tuple[Part, ...], captured: Capture) -> str:
    """The first lines of the emitted file: what it is, and what was fused."""
    submodules = submodules_of(parts)
    whole = [(part, *bodies_of(part, parts)) for part in forwards_of(parts)]
    fusing = next((own for own in whole if any(part.fuses for part in own)), whole[0])
    shown = [own[0] for own in submodules.values()] or fusing
    groups = [group for part in shown for group in part.plan.groups if group.fused]
    lines = [title(original, target)]
    if submodules:
        lines.append(f"The forward runs as it is: {captured.left[0][1]}. With kernels are")
        lines += [f"{kind.name}: {_shortened(kind)}." for kind in submodules]
    reasons = {group.name: group.as_compiled.reason for group in reversed(groups)}
    for name, count in Counter(group.name for group in groups).items():
        often = f" ({count} times)" if count > 1 else ""
        lines.append(f"{name}{often}: {reasons[name]}.")
    if any(part.variant.contract.forward_only for part in shown):
        lines.append(WITHOUT_GRADIENTS)
    if not groups and not any(part.runs for part in parts):
        lines.append(f"{AS_IT_IS}.")
    return "\n".join(lines)


def _shortened(kind: Submodule) -> str:
    most, paths = 4, kind.paths
    return ", ".join(paths if len(paths) <= most else (*paths[: most - 1], "...", paths[-1]))
