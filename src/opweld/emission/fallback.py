"""What an emitted file can say of a call that the original ran: which option would cover it."""

from __future__ import annotations

from ..ir.contract import Needs
from ..ir.original import Original, Part
from ..ir.types import DType
from .guards import AUTOCAST_DTYPES
from .host_bound import is_early
from .spelling.ops import dtype

# Those that --dtype makes kernels for.
_DTYPES = (DType.F16, DType.BF16, DType.F32, DType.F64)


def teller(original: Original, parts: tuple[Part, ...], needs: Needs) -> str:
    """The call that makes the file's `tell`; what was asked for and is not there is PyTorch's."""
    name = original.file.removesuffix(".py")
    lists = (_modes(parts, needs), _autocasts(parts, needs), _dtypes(parts, needs))
    texts = [*map(_tuple, lists), f"[{', '.join(_shapes(parts))}]"]
    return f'_teller("{name}", {", ".join(texts)})'


def _shapes(parts: tuple[Part, ...]) -> list[str]:
    """The shapes of the tensors that are arguments themselves, "*" for sizes that vary; none where
    other arguments hold tensors, or the classes of submodules have each their own.
    """
    contract = parts[0].variant.contract
    if not is_early(contract) or any(part.variant.submodule for part in parts):
        return []
    shapes = [fact.type.shape for fact in contract.inputs if fact.type is not None]
    return [str([n if isinstance(n, int) else "*" for n in s]).replace("'", '"') for s in shapes]


def _modes(parts: tuple[Part, ...], needs: Needs) -> list[str]:
    """The mode that has no kernels although it is another computation."""
    first = parts[0].variant
    facts = [fact for part in parts for fact in part.variant.contract.modules]
    if needs.mode == "both" or not any(fact.mode is not None for fact in facts):
        return []
    return ["eval" if first.training else "training"]


def _autocasts(parts: tuple[Part, ...], needs: Needs) -> list[str]:
    variants = [part.variant for part in parts]
    own = [each for each in variants if not each.other_mode and not each.dtype]
    covered = {name for each in own for name in (*each.also, each.autocast)}
    return [name for name in AUTOCAST_DTYPES if name not in covered | {*needs.autocast}]


def _dtypes(parts: tuple[Part, ...], needs: Needs) -> list[str]:
    contracts = [part.variant.contract for part in parts]
    given = [fact.type for each in contracts for fact in each.inputs if fact.type is not None]
    weights = [fact.type for each in contracts for fact in each.weights]
    made = {type.dtype for type in (*given, *weights)}
    names = [dtype(each).removeprefix("torch.") for each in _DTYPES if each not in made]
    return [name for name in names if name not in needs.dtypes] if made & {*_DTYPES} else []


def _tuple(names: list[str]) -> str:
    quoted = "".join(f'"{name}", ' for name in names)
    return f"({quoted if len(names) == 1 else quoted.removesuffix(', ')})".replace(", )", ",)")
