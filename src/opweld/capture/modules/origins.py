"""The user's own source lines, from the stack traces that torch keeps."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable
from types import TracebackType

import torch
from torch import fx

from opweld.errors import Where

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]*)(?:\n\s+([^\n]*))?')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def is_users(file: str) -> bool:
    """Whether a source file is neither torch's, nor ours, nor Python's."""
    if file.startswith((_TORCH, _OURS, "torch/", "<frozen")):
        return False
    return not file.startswith(_PYTHON) or "site-packages" in file


def origin_of(node: fx.Node) -> tuple[str, str] | None:
    """("model.py:14", "return x * 2"): the user's innermost line behind an exported node."""
    place = where_of(node)
    return None if place is None else (f"{place.file}:{place.line}", place.text or "")


def where_of(node: fx.Node) -> Where | None:
    own = _users_frames(node.meta.get("stack_trace") or "")
    return _where(own[-1]) if own else None


def forward_lines(node: fx.Node) -> list[tuple[str, str]]:
    """The lines of the user's functions called forward that were running, the outermost first."""
    frames = _users_frames(node.meta.get("stack_trace") or "")
    places = [_where(frame) for frame in frames if frame[2] == "forward"]
    return [(f"{place.file}:{place.line}", place.text or "") for place in places]


def _users_frames(trace: str) -> list[tuple[str, str, str, str]]:
    return [frame for frame in _FRAME.findall(trace) if is_users(frame[0])]


def _where(frame: tuple[str, str, str, str]) -> Where:
    file, line, _, text = frame
    return Where(os.path.basename(file), int(line), text.strip())


def where_in(nodes: Iterable[fx.Node]) -> Where | None:
    """The first of these nodes' places that is the user's."""
    return next((place for node in nodes if (place := where_of(node))), None)


def where_raised(error: BaseException) -> Where | None:
    """The user's innermost line in a traceback, that of the error's cause first."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for link in reversed(chain):
        place = _innermost(link.__traceback__)
        if place is not None:
            return place
    return _named_in(str(error))


def _innermost(trace: TracebackType | None) -> Where | None:
    own = [frame for frame in traceback.extract_tb(trace) if is_users(frame.filename)]
    if not own:
        return None
    return Where(os.path.basename(own[-1].filename), own[-1].lineno, own[-1].line)


def _named_in(message: str) -> Where | None:
    own = _users_frames(message)
    return _where(own[-1]) if own else None
