"""Weights of submodules that are called as something that every fx.GraphModule has, `code` say.

Torch puts weights into a GraphModule by their names, and finds its own attribute there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from torch import fx, nn
from torch.export import ExportedProgram

_TAKEN = frozenset(dir(fx.GraphModule)) - frozenset(dir(nn.Module))
_PREFIX = "opweld_"


@contextlib.contextmanager
def unlike_modules(
    program: ExportedProgram,
) -> Iterator[Callable[[ExportedProgram], ExportedProgram]]:
    """Gives such weights another name; yields what gives back theirs in a program made of this."""
    signature = program.graph_signature
    specs = [s for s in (*signature.input_specs, *signature.output_specs) if _is_taken(s.target)]
    names = {str(spec.target): f"{_PREFIX}{spec.target}" for spec in specs}
    for spec in specs:
        spec.target = names[str(spec.target)]
    for held in (program.state_dict, program.constants):
        _rename(held, names)

    def restored(made: ExportedProgram) -> ExportedProgram:
        back = {new: old for old, new in names.items()}
        of_made = made.graph_signature
        for spec in (*of_made.input_specs, *of_made.output_specs):
            spec.target = back.get(str(spec.target), spec.target)
        for held in (made.state_dict, made.constants):
            _rename(held, back)
        return made

    yield restored


def _is_taken(target: str | None) -> bool:
    return target is not None and target.partition(".")[0] in _TAKEN


def _rename(held: MutableMapping[str, Any], names: dict[str, str]) -> None:
    for name, new in names.items():
        if name in held:
            held[new] = held.pop(name)
