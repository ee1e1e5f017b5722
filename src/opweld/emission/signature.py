"""The forward's parameters as text, and the call that hands them on."""

from __future__ import annotations

import ast


def handed_on(signature: str) -> str:
    """Arguments that give every parameter of `self, x, *, mask=None` on to the original: what has a
    default by its name, for a wrapper around the forward may look for it there.
    """
    arguments = _parsed(signature)
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
    first_only = max(len(arguments.posonlyargs) - 1, 0)
    named = 0 if arguments.vararg else min(len(arguments.defaults), len(positional) - first_only)
    count = len(positional) - named
    texts = [*positional[:count], *(f"{name}={name}" for name in positional[count:])]
    if arguments.vararg:
        texts.append(f"*{arguments.vararg.arg}")
    texts += [f"{a.arg}={a.arg}" for a in arguments.kwonlyargs]
    if arguments.kwarg:
        texts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(texts)


def parameter_names(signature: str) -> tuple[str, ...]:
    """Names of all parameters but the first."""
    arguments = _parsed(signature)
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
    named += [a.arg for a in arguments.kwonlyargs]
    named += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return tuple(named)


def bare(signature: str) -> str:
    """The parameters without self, defaults and kinds: the guard's own."""
    return ", ".join(parameter_names(signature))


def _parsed(signature: str) -> ast.arguments:
    function = ast.parse(f"def forward({signature}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.args
