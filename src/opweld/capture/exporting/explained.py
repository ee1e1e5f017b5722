"""What an error of torch.export says of the user's forward."""

from __future__ import annotations

import re

from opweld.errors import CaptureError, OriginalKept, Where

from ..modules.origins import where_raised
from ..records import unknown_record
from ..sizes import size_of_elements

# What stands in a message or the error's name, what it means, and what to do.
_MEANINGS = (
    (
        ("data-dependent", "GuardOnDataDependent"),
        "the forward decides by the elements of a tensor, which a graph cannot hold",
        "use torch.where, or keep the decision out of the forward",
    ),
    (
        (".numpy() is not supported",),
        "the forward gives the elements of a tensor to NumPy, which a graph cannot hold",
        "use PyTorch's operators, or keep it out of the forward",
    ),
)
_UNKNOWN_TYPE = (
    "return tensors, tuples, lists, dicts, named tuples or dataclasses, or"
    " register the type with torch.utils._pytree.register_pytree_node"
)
# What traces a forward. An error of theirs is none of the forward's, which may run as it is.
_TRACERS = tuple(
    f"torch.{name}." for name in ("export", "_export", "fx", "_subclasses", "_functorch", "_dynamo")
)
_ARGUMENT = re.compile(r"argument of type: <class '(?:[\w.]+\.)?(\w+)'>")


def explained(error: Exception) -> CaptureError:
    """An export's error as a sentence, with the line of the user's and what to do, if known."""
    where, text = where_raised(error), str(error)
    if isinstance(error, CaptureError):
        return type(error)(error.sentence, where=where, next_step=error.next_step)
    for parts, sentence, next_step in _MEANINGS:
        if any(part in f"{type(error).__name__}: {text}" for part in parts):
            return CaptureError(sentence, where=where, next_step=next_step)
    if "Pending unbacked symbols" in text:
        return size_of_elements(where)
    if isinstance(error, AssertionError) and "expected compiled_fn" in text:
        return OriginalKept("the forward changes a tensor whose memory another one has, too")
    if isinstance(error, NotImplementedError) and (argument := _ARGUMENT.match(text)):
        return no_graph_holds(argument[1], where)
    if (unknown := unknown_record(error)) is not None:
        sentence = f"the forward returns a {unknown}, whose parts torch does not know"
        return CaptureError(sentence, where=where, next_step=_UNKNOWN_TYPE)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    what = "cannot be captured" if _is_torch_s(error) else f"raises {type(error).__name__}"
    return CaptureError(f"the forward {what}: {first.strip()}", where=where)


def no_graph_holds(kind: str, where: Where | None) -> OriginalKept:
    """For a forward that uses an object of the type `kind`, which is no tensor."""
    return OriginalKept(f"the forward uses an object that no graph holds, a {kind}", where=where)


def _is_torch_s(error: Exception) -> bool:
    """Whether it is one of torch's own types, or comes from where a forward is traced."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = str(trace.tb_frame.f_globals.get("__name__")) if trace else ""
    return type(error).__module__.startswith("torch.") or f"{raised_in}.".startswith(_TRACERS)
