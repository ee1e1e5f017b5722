"""The end of the emitted file: the support that is the same in every file, and its one call."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from ..device import CPP_FLAGS
from . import piece

MARKER = "# --- opweld's library, as far as this file uses it ---"
# The oldest stable ABI that has all that the host code calls: PyTorch 2.10.
ABI_FLAG = "-DTORCH_TARGET_VERSION=0x020a000000000000"
# Emitted files name their kernels alike, and g++ has all libraries of a process share static
# members and statics of templates, bound to their own symbols or not, unless it is told not to.
OWN_SYMBOLS = "-fvisibility=hidden"
_FLAGS = {
    "cuda": ("-O2", "-DUSE_CUDA", ABI_FLAG, OWN_SYMBOLS),
    "c++": (*CPP_FLAGS, ABI_FLAG, OWN_SYMBOLS),
}
# Optional support: its text, and what the rest of a file says where it needs it. Each stands after
# what it uses.
_OPTIONAL = {
    "asks": ("asks=_asks", "=_asks_for_gradients("),
    "gradients/asked": ("=_asks_for_gradients(",),
    "host_bound": ("=_host_bound(",),
    "fallback": ("_kernels.tell(",),
    "gradients/recorded": ("_recorded(",),
    "paths": ("_paths(",),
    "facts": ("_facts(",),
    "flags/tf32": ("_kernels.allows_tf32(",),
    "flags/tf32_convolutions": ("_kernels.allows_tf32_convolutions(",),
    "memory/channels_last": ("_kernels.channels_last(",),
    "buffers/track": ("_kernels.track(",),
    "buffers/tracking": ("_tracking(",),
    "buffers/before": ("_kernels.before(",),
    "buffers/update": ("_kernels.update(",),
    "autocast": ("_kernels.autocast(",),
    "of_attributes": ("_of_attributes(",),
    "named": ("_named(",),
    "several": ("_several(",),
    "gradients/closed": ("_closed(", "_by_kernels("),
    "gradients/by_kernels": ("_by_kernels(",),
    "gradients/batch_norm": ("_batch_norm_backward(",),
    "memory/reuse": ("_reusing(",),
    "memory/moving": ("_moving(",),
    "tensor_list": ("_fused_over_list(",),
    "replay": ("_replaying(",),
    "gradients/steps": ("_steps(",),
    "span": ("_in_one_span(",),
    "row_blocks": ("_in_row_blocks(",),
    "side_by_side": ("_side_by_side",),
    "submodules/refitting": ("_refitting(",),
}
# Of these there is a shorter text for calls without gradients.
_FORWARD_ONLY = frozenset({"tensor_list"})
# What the class calls by names of `_kernels`.
_HELD = (
    *("allows_tf32", "allows_tf32_convolutions", "channels_last"),
    *("track", "before", "update", "unshared"),
)
_MAX_CHARS = 98
# Of flags behind the name that they are given.
_MAX_FLAGS = 68

# A function of the support and its arguments, as text.
Call = tuple[str, list[str]]


def support_text(language: str, gradients: bool = True) -> str:
    """What builds kernels and makes operations of them, with `gradients` or for calls without;
    `language` is "cuda" or "c++".
    """
    target = piece(f"targets/{'cuda' if language == 'cuda' else 'cpu'}").rstrip()
    flags = ", ".join(f'"{flag}"' for flag in _FLAGS[language])
    indent = " " * 12
    if len(flags) > _MAX_FLAGS:
        lines = textwrap.wrap(flags, _MAX_CHARS - len(indent))
        flags = "".join(f"\n{indent}{line}" for line in lines)
    built = piece("support").strip().replace("@TARGET@", target.replace("@FLAGS@", flags))
    made = piece("gradients/fused" if gradients else "forward_only/fused").strip()
    return f"{built}\n\n\n{made}"


def optional_texts(text: str, gradients: bool = True) -> list[str]:
    """The support that not every file needs: what `text`, the rest of the file, names; `gradients`
    as in support_text.
    """
    needed = (n for n, words in _OPTIONAL.items() if any(word in text for word in words))
    shorter = frozenset() if gradients else _FORWARD_ONLY
    return [piece(f"forward_only/{n}" if n in shorter else n).strip() for n in needed]


def held_in(class_text: str, device_type: str) -> dict[str, str]:
    """What the text of the class calls of the optional support, with the texts of the functions."""
    functions = {name: f"_{name}" for name in _HELD}
    functions["autocast"] = f'_autocast_of("{device_type}")'
    return {name: text for name, text in functions.items() if f"_kernels.{name}(" in class_text}


def call_text(
    slug: str, libraries: list[str], held: Mapping[str, str], kernels: Mapping[str, Call]
) -> str:
    """The call that gives ModelNew its kernels: `kernels` makes a function of each operator."""
    items = [f'ModelNew, "{slug}"', wrapped("[", libraries, "]", 4)]
    if len(libraries) > 1:
        items.append("each=_side_by_side")
    if held:
        entries = [f"{name}={text}" for name, text in held.items()]
        items.append(wrapped("held=dict(", entries, ")", 4))
    for name, (function, arguments) in kernels.items():
        items.append(filled(f"{name}=lambda op: {function}(", arguments, ")", 4))
    return "\n".join(["_fuse(", *(f"    {item}," for item in items), ")"])


def filled(start: str, items: Iterable[str], end: str, indent: int) -> str:
    """A call, in lines of as many items as there is room for; long ones go on below."""
    listed = list(items)
    if len(line := f"{start}{', '.join(listed)}{end}") + indent < _MAX_CHARS:
        return line
    room = _MAX_CHARS - indent - 4
    texts = [*(f"{item}," for item in listed[:-1]), f"{listed[-1]}{end}"]
    lines = fill((_at_blanks(text, room) for text in texts), room)
    return f"\n{' ' * (indent + 4)}".join([start, *lines])


def fill(items: Iterable[list[str]], width: int) -> list[str]:
    """Lines of as many items as there is room for; an item of several lines begins a new one."""
    lines: list[str] = []
    for first, *rest in items:
        if lines and not rest and len(lines[-1]) + 1 + len(first) <= width:
            lines[-1] += f" {first}"
        else:
            lines += [first, *rest]
    return lines


def _at_blanks(text: str, width: int) -> list[str]:
    """A text in lines, with what is in inner parentheses in one of them."""
    depth, kept = 0, ""
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        kept += "\0" if char == " " and depth > 1 else char
    lines = textwrap.wrap(
        kept, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def wrapped(start: str, items: Iterable[str], end: str, indent: int) -> str:
    """A call or list, one item a line where it would be long."""
    listed = list(items)
    line = f"{start}{', '.join(listed)}{end}"
    if len(line) + indent < _MAX_CHARS:
        return line
    lines = [f"{' ' * (indent + 4)}{item}," for item in listed]
    return "\n".join([start, *lines, f"{' ' * indent}{end}"])
