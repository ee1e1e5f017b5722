"""Why a call of a ModelNew runs the original: its own forward and guards, read step by step.

Both stand in the emitted file (docs/emitted-file.md). Here their tests are evaluated in the file's
order on the arguments of a call, and a guard clause by clause; which option would help is what the
file's own warning says.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from opweld.errors import clipped

NEW, GUARD = "ModelNew", "_opweld_fits"
HELD = "the kernels run"
ORIGINAL = "the original runs"
HOST_BOUND = (
    "a small call with gradients takes the host's time, and kernels under autograd take more of"
    " it; larger calls, or torch.no_grad(), run them"
)
FORWARD_ONLY = (
    "it asks for gradients, and the kernels are for calls without: torch.no_grad() runs them,"
    " opweld optimize --training makes some for gradients"
)
NOT_BUILT = "its kernels were not built, or no device here runs them; a warning said why"
# What a forward asks of `_kernels` before its guard, and what that means where it holds.
AT_ONCE = {"host_bound": HOST_BOUND, "asks_for_gradients": FORWARD_ONLY}
# What the file's own warning says of sizes begins so.
_OTHER_SIZES = "an input is of "
# What clauses that are not about the arguments mean where they do not hold.
_MEANINGS = {
    "type(self) is": "the module is of another class than ModelNew",
    "_current_level": "forward-mode differentiation is on",
    "_has_any_global_hook": "there is a hook on the calls of all modules",
    "_are_functorch_transforms_active": "the kernels do not work under torch.func",
    "allows_tf32": "torch's flags do not allow TF32, as they did when the kernels were made",
    "requires_grad": "a gradient is asked for, which the kernels lack; torch.no_grad() runs them",
}


def why(module: Any, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One sentence: that the kernels run, or the first test that does not hold.

    `module` is a ModelNew, `text` the file that it was imported from. Of several guards, for other
    dtypes and modes, it is the one that holds for longest.

    Raises:
        TypeError: the arguments are none for its forward.
    """
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return why_of(module, text, bound.arguments)


def why_of(module: Any, text: str, arguments: dict[str, Any]) -> str:
    """The same, of a call whose arguments are given by the forward's names."""
    tree = ast.parse(text)
    fused = [
        name for name in _classes(tree) if any(n.startswith(GUARD) for n in _methods(tree, name))
    ]
    if fused and NEW not in fused:
        return _why_submodules(module, tree, fused, arguments)
    return _why_one(module, tree, NEW, arguments)


def _why_submodules(
    module: Any, tree: ast.Module, fused: list[str], arguments: dict[str, Any]
) -> str:
    """A clause for each class of submodules with kernels, of the first call of one: the model is
    run, on a copy.
    """
    twin, found = copy.deepcopy(module), dict[str, str]()

    def note(child: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = type(child).__name__
        if name not in found:
            bound = inspect.signature(child.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            found[name] = _why_one(child, tree, name, bound.arguments)

    for child in twin.modules():
        if type(child).__name__ in fused and type(child)._opweld.model is type(child):
            child.register_forward_pre_hook(note, with_kwargs=True)
    torch = type(module).__init__.__globals__["torch"]  # the file's; not imported for a command
    with torch.random.fork_rng():
        twin(**arguments)
    told = [f"{name}: {found.get(name, 'is not called')}" for name in fused]
    return f"the forward runs as it is, and of its submodules {'; '.join(told)}"


def _why_one(module: Any, tree: ast.Module, name: str, arguments: dict[str, Any]) -> str:
    reading = _Reading(module, tree, name, arguments)
    if not reading.guards:
        return f"{ORIGINAL}: nothing of this model was fused"
    if not reading.kernels.devices:
        return f"{ORIGINAL}: {NOT_BUILT}"
    return HELD if reading.comes_to_kernels() else f"{ORIGINAL}: {reading.reason()}"


def guards_of(text: str) -> dict[str, tuple[str, ...]]:
    """The clauses of each guard of an emitted file, by its name."""
    tree = ast.parse(text)
    return {
        name: tuple(map(ast.unparse, _clauses(method)))
        for each in _classes(tree)
        for name, method in _methods(tree, each).items()
        if name.startswith(GUARD)
    }


def _has_guards(tree: ast.Module, name: str) -> bool:
    return any(method.startswith(GUARD) for method in _methods(tree, name))


def _classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _methods(tree: ast.Module, name: str) -> dict[str, ast.FunctionDef]:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    new = next((node for node in classes if node.name == name), None)
    return (
        {each.name: each for each in new.body if isinstance(each, ast.FunctionDef)} if new else {}
    )


def _clauses(guard: ast.FunctionDef) -> Iterator[ast.expr]:
    """`return (a and b)`, with `if not (c and d): return False` before it or without."""
    for statement in guard.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.UnaryOp):
            yield from _conjunction(statement.test.operand)
        if isinstance(statement, ast.Return) and statement.value:
            yield from _conjunction(statement.value)


def _conjunction(test: ast.expr) -> list[ast.expr]:
    is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
    return test.values if isinstance(test, ast.BoolOp) and is_and else [test]


class _Reading:
    """One call of an object of the class `name`, as its text decides about it."""

    def __init__(self, module: Any, tree: ast.Module, name: str, arguments: dict[str, Any]) -> None:
        self._module, self._tree, self._methods = module, tree, _methods(tree, name)
        self.guards = [name for name in self._methods if name.startswith(GUARD)]
        self.kernels: Any = getattr(module, "_opweld", None)
        self._names = {"self": module, "_kernels": self.kernels, **arguments}
        self._failed: list[tuple[int, ast.expr]] = []
        self._at_once = ""

    def comes_to_kernels(self) -> bool:
        return bool(self._runs(self._methods["forward"].body))

    def reason(self) -> str:
        """Why it did not, with what to do about it where there is something."""
        if self._at_once:
            return self._at_once
        sentence, hint = self._warning(), ""
        if sentence.startswith(_OTHER_SIZES):  # the guard says it with names
            sentence, hint = "", "; " + sentence.partition("; ")[2]
        if sentence:
            return sentence
        if not self._failed:
            return "autocast to another dtype is on"
        found = [(number, self._meaning(clause)) for number, clause in self._failed]
        # that of another mode is no news where this one has a guard
        _, meaning = max(found, key=lambda each: (".training is " not in each[1], each[0]))
        return meaning + hint

    def _runs(self, statements: Iterable[ast.stmt]) -> bool | None:
        """Whether they come to kernels before they return; None where they do neither."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id="_kernels")]):
                    continue
                case ast.Assign(targets=[ast.Name(id="_autocast")], value=value):
                    self._names["_autocast"] = self._value(value)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="tell"))):
                    continue
                case ast.Return(value=ast.Call() as value) if _is_of_the_original(value):
                    return False
                case ast.If(test=test, body=body) if _is_about_the_call(test):
                    found = self._runs(body) if self._holds(test) else None
                    if found is not None:
                        return found
                case _:
                    return True
        return None

    def _holds(self, test: ast.expr) -> bool:
        holds = bool(self._value(test))
        text = ast.unparse(test)
        if meaning := _meaning_at_once(text):
            self._at_once = meaning if holds else ""
        elif holds == text.startswith("not "):
            self._failed += [self._first_false(name) for name in _guards_in(test)]
        return holds

    def _first_false(self, guard: str) -> tuple[int, ast.expr]:
        """How many clauses hold before the first that does not, and that one."""
        clauses = list(_clauses(self._methods[guard]))
        false = (n for n, clause in enumerate(clauses) if not self._value(clause))
        number = next(false, len(clauses) - 1)
        return number, clauses[number]

    def _value(self, expression: ast.expr) -> Any:
        return eval(
            compile(ast.Expression(expression), "<guard>", "eval"), self._scope, self._names
        )

    @property
    def _scope(self) -> dict[str, Any]:
        return getattr(type(self._module), self.guards[0]).__globals__

    def _warning(self) -> str:
        """What the file's warning says of such a call, which it says once; mostly nothing."""
        made = _call_of("_teller", self._tree)
        asked = _call_of("_kernels.tell", self._methods["forward"])
        if made is None or asked is None:
            return ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._value(made)(*map(self._value, asked.args))
        return "".join(str(each.message).partition("ran the original: ")[2] for each in caught)

    def _meaning(self, clause: ast.expr) -> str:
        text = ast.unparse(clause)
        if isinstance(clause, ast.Call) and text.startswith("_kernels.plain("):
            return self._other_tensor(clause)
        if isinstance(clause, ast.Call) and text.startswith("_kernels.holds"):
            return self._other_state(clause)
        known = (meaning for word, meaning in _MEANINGS.items() if word in text)
        return next(known, f"`{text}` does not hold{self._arguments_in(clause)}")

    def _arguments_in(self, clause: ast.expr) -> str:
        read = {node.id for node in ast.walk(clause) if isinstance(node, ast.Name)}
        given = ((n, self._names[n]) for n in sorted(read - {"self", "_kernels"} & {*self._names}))
        described = ", ".join(f"{name} is {_described(value)}" for name, value in given)
        return f" ({described})" if described else ""

    def _other_tensor(self, clause: ast.Call) -> str:
        access, dtype, devices, *shape = clause.args
        wanted = _type(self._value(dtype), *map(self._value, shape))
        places = " or ".join(map(str, self._value(devices)))
        given = _described(self._value(access))
        return f"{ast.unparse(access)} is {given}, and the kernels are for {wanted} on {places}"

    def _other_state(self, clause: ast.Call) -> str:
        """The first module or weight that is not as it was: the file's own test, row by row."""
        holds = getattr(clause.func, "attr", "")
        made = next(k.value for k in _keywords(self._tree) if k.arg == holds)
        assert isinstance(made, ast.Call)
        modules, weights = map(self._value, made.args)
        more = {k.arg: self._value(k.value) for k in made.keywords if k.arg}
        given = [self._value(each) for each in clause.args]
        flags = {k.arg: self._value(k.value) for k in clause.keywords if k.arg}
        without = "" if flags.get("gradients", True) else ", without a gradient"

        def is_as_it_was(modules: list[Any], weights: list[Any]) -> bool:
            return self._scope["_facts"](modules, weights, **more)(*given, **flags)

        rows: list[tuple[tuple[list[Any], list[Any]], str]] = [
            (([row], []), meaning)
            for kind, paths, reads in modules
            for path in paths
            for row, meaning in self._asked_of_module(kind, path, reads)
        ]
        rows += [
            (([], [(dtype, shape, [path])]), self._other_weight(path, _type(dtype, shape), without))
            for dtype, shape, paths in weights
            for path in paths
        ]
        false = (meaning for row, meaning in rows if not is_as_it_was(*row))
        return next(false, "the module is not as it was when the kernels were made")

    def _asked_of_module(
        self, kind: Any, path: str, reads: dict[str, Any]
    ) -> Iterator[tuple[tuple[Any, list[str], dict[str, Any]], str]]:
        yield (kind, [path], {}), f"{_below(path)} is of another class, or has hooks"
        for name, wanted in reads.items():
            yield (kind, [path], {name: wanted}), self._other_attribute(path, name, wanted)

    def _other_weight(self, path: str, wanted: str, without: str) -> str:
        now = _described(self._at(path))
        return f"{_below(path)} is {now}, and the kernels are for {wanted}{without}"

    def _other_attribute(self, path: str, name: str, wanted: Any) -> str:
        now, before = self._at(f"{path}.{name}"), wanted
        if name == "_modules":
            now, before = tuple(now or ()), tuple(before)
        place = f"{_below(path)}.{name}"
        return clipped(f"{place} is {now!r}, and was {before!r} when the kernels were made", 300)

    def _at(self, path: str) -> Any:
        names = filter(None, path.split("."))
        return functools.reduce(lambda each, name: getattr(each, name, None), names, self._module)


def _is_of_the_original(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "super().forward"


def _is_about_the_call(test: ast.expr) -> bool:
    text = ast.unparse(test)
    asked = bool(_meaning_at_once(text)) or text.startswith("_autocast ")
    return asked or bool(_guards_in(test))


def _meaning_at_once(text: str) -> str:
    return next((said for name, said in AT_ONCE.items() if f"_kernels.{name}" in text), "")


def _guards_in(test: ast.expr) -> list[str]:
    names = (node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute))
    return [name for name in names if name.startswith(GUARD)]


def _call_of(name: str, tree: ast.AST) -> ast.Call | None:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return next((call for call in calls if ast.unparse(call.func) == name), None)


def _keywords(tree: ast.AST) -> Iterator[ast.keyword]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.keyword))


def _below(path: str) -> str:
    return f"self.{path}" if path else "self"


def _described(value: Any) -> str:
    if all(hasattr(value, name) for name in ("dtype", "device", "shape")):
        return f"{_type(value.dtype, value.shape)} on {value.device}"
    is_plain = value is None or isinstance(value, bool | int | float | complex | str)
    return clipped(repr(value), 60) if is_plain else f"of type {type(value).__name__}"


def _type(dtype: Any, shape: Iterable[Any] | None = None) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if shape is None else f"{name}[{', '.join(map(str, shape))}]"
