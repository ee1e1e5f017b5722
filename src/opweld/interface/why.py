"""Why a call of a ModelNew runs the original: its own guard, read clause by clause.

The guard stands in the emitted file as one expression (`_opweld_fits`, docs/emitted-file.md). Here
its clauses are evaluated one by one on the arguments of a call.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

GUARD = "_opweld_fits"
HELD = "the kernels run"
_OPTIONS = (".training", "--mode both"), ("autocast", "--autocast DTYPE")


def why(module: Any, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One sentence: that the kernels run, or the first clause that does not hold.

    `module` is a ModelNew, `text` the file that it was imported from. Of several guards, for other
    dtypes and modes, it is the one that holds for longest.

    Raises:
        TypeError: the arguments are none for its forward.
    """
    methods = _methods(text)
    guards = [each for name, each in methods.items() if name.startswith(GUARD)]
    if not guards or "forward" not in methods:
        return "the original runs: nothing of this model was fused"
    names = _names(module, args, kwargs)
    if _is_host_bound(methods["forward"], module, names):
        return (
            "the original runs: a small call with gradients takes the host's time, and kernels"
            " under autograd take more of it; larger calls, or torch.no_grad(), run them"
        )
    failed = [_first_false(guard, module, names) for guard in guards]
    if None in failed:
        return _beside_autocast(methods["forward"], module, names)
    _, clause = max(each for each in failed if each is not None)
    return (
        f"the original runs: `{clause}` does not hold{_values(clause, names)}{_next(clause, names)}"
    )


def guards_of(text: str) -> dict[str, tuple[str, ...]]:
    """The clauses of each guard of an emitted file, by its name."""
    return {
        name: tuple(map(ast.unparse, _clauses(method)))
        for name, method in _methods(text).items()
        if name.startswith(GUARD)
    }


def _methods(text: str) -> dict[str, ast.FunctionDef]:
    classes = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    new = next((node for node in classes if node.name == "ModelNew"), None)
    return (
        {each.name: each for each in new.body if isinstance(each, ast.FunctionDef)} if new else {}
    )


def _names(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the forward calls its arguments, and what its guards read beside them."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return {"self": module, "_kernels": getattr(module, "_opweld", None), **bound.arguments}


def _evaluate(clause: ast.expr, module: Any, names: dict[str, Any]) -> Any:
    scope = getattr(type(module), GUARD).__globals__
    return eval(compile(ast.Expression(clause), "<guard>", "eval"), scope, names)


def _clauses(guard: ast.FunctionDef) -> Sequence[ast.expr]:
    returned = next(node.value for node in guard.body if isinstance(node, ast.Return))
    if isinstance(returned, ast.BoolOp) and isinstance(returned.op, ast.And):
        return returned.values
    return [returned] if returned else []


def _first_false(
    guard: ast.FunctionDef, module: Any, names: dict[str, Any]
) -> tuple[int, str] | None:
    """How many clauses hold before the first that does not, and that one; None where all do."""
    for number, clause in enumerate(_clauses(guard)):
        if not _evaluate(clause, module, names):
            return number, ast.unparse(clause)
    return None


def _is_host_bound(forward: ast.FunctionDef, module: Any, names: dict[str, Any]) -> bool:
    tests = [node.test for node in forward.body if isinstance(node, ast.If)]
    asked = (test for test in tests if "host_bound" in ast.unparse(test))
    return any(_evaluate(test, module, names) for test in asked)


def _beside_autocast(forward: ast.FunctionDef, module: Any, names: dict[str, Any]) -> str:
    """The guard holds; where forwards differ by autocast, whether there is one for its dtype."""
    tests = [node.test for node in ast.walk(forward) if isinstance(node, ast.If)]
    by_dtype = [test for test in tests if ast.unparse(test).startswith("_autocast is")]
    names = {**names, "_autocast": by_dtype and names["_kernels"].autocast()}
    if not by_dtype or any(_evaluate(test, module, names) for test in by_dtype):
        return HELD
    dtype = str(names["_autocast"]).removeprefix("torch.")
    return (
        f"the original runs: autocast to {dtype} is on; `--autocast {dtype}` makes kernels for it"
    )


def _values(clause: str, names: dict[str, Any]) -> str:
    """The tensors that a clause asks about, as they are."""
    read = {node.id for node in ast.walk(ast.parse(clause)) if isinstance(node, ast.Name)}
    told = []
    for name, value in names.items():
        if name in read and _is_tensor(value):
            shape = ", ".join(map(str, value.shape))
            told.append(f"{name} is {str(value.dtype)[6:]}[{shape}] on {value.device}")
    return f" ({', '.join(told)})" if told else ""


def _is_tensor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("dtype", "device", "shape"))


def _next(clause: str, names: dict[str, Any]) -> str:
    """The option that makes kernels for such calls, where there is one."""
    for word, option in _OPTIONS:
        if word in clause:
            return f"; `{option}` makes kernels for it"
    if ".plain(" in clause:
        given = {str(each.dtype)[6:] for each in names.values() if _is_tensor(each)}
        floats = sorted(given & {"float16", "bfloat16", "float32", "float64"})
        return f"; `--dtype {floats[0]}` makes kernels for it" if len(floats) == 1 else ""
    return ""
