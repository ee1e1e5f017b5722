"""Honest files without number: small models, each written again in many styles.

A file of `small` has a model; every other function of `self` in it, and every other module, is a
forward or a class that computes the same in another way. `styles.py` has ways that suit several
models. A seed names a pair of them, and sizes for the model.

    FOR_INFERENCE  the styles of a file whose results carry no gradients
    WHOLE          those that do all that the original does, to be judged in the scope "full"
"""

from __future__ import annotations

import ast
import functools
import random
import re
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cheats.styles import EMITTED, STYLES, SUBCLASSES, Style

SMALL = Path(__file__).with_name("small")
MODEL_NAMES = ("Model", "get_inputs", "get_init_inputs")
GROWTH = {"ROWS": (0, 1, 9), "WIDTH": (0, 3, 16)}


@dataclass(frozen=True)
class Generated:
    """A model file, and an honest file beside it."""

    name: str
    model: str
    new: str
    for_inference: bool
    whole: bool
    noted: None = None

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The two files, in a folder."""
        paths = folder / f"{self.name}_model.py", folder / f"{self.name}.py"
        for path, text in zip(paths, (self.model, self.new), strict=True):
            path.write_text(text, encoding="utf-8")
        return paths


class Source:
    """A file of `small`, taken apart into its statements."""

    def __init__(self, name: str) -> None:
        self.text = (SMALL / f"{name}.py").read_text("utf-8")
        self.name = name
        self.tree = ast.parse(self.text)
        self.statements = [Statement(each, self.text) for each in self.tree.body[1:]]
        self.doc = ast.get_docstring(self.tree)
        self.model = self.named("Model")
        self.constants = {
            name: ast.literal_eval(each.node.value)
            for each in self.statements
            for name in each.names
            if isinstance(each.node, ast.Assign) and name in ("FOR_INFERENCE", "WHOLE")
        }

    def named(self, name: str) -> Statement:
        return next(each for each in self.statements if name in each.names)

    @property
    def styles(self) -> list[str]:
        """The names of its other forwards and of its other modules."""
        return [each.names[0] for each in self.statements if each.is_style]

    def closure(self, used: Iterable[str], without: Sequence[str] = ()) -> str:
        """The statements that define the names, and all that these need, in their order."""
        wanted, kept = set(used) - set(without), set[int]()
        while True:
            found = {i for i, s in enumerate(self.statements) if s.belongs_to(wanted)}
            if found == kept:
                break
            kept = found
            for i in kept:
                wanted |= self.statements[i].uses
            wanted -= set(without)
        imports = [i for i in kept if self.statements[i].imports]
        lines = "\n".join(self.statements[i].text for i in sorted(imports))
        rest = [self.statements[i].text for i in sorted(kept.difference(imports))]
        return "\n\n\n".join([lines, *rest])


class Statement:
    """One statement at the top of a file: its text, the names that it binds, those that it uses."""

    def __init__(self, node: ast.stmt, text: str) -> None:
        self.node = node
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        self.text = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        self.names = _bound(node)
        self.uses = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(self.names)
        # `@op.register_fake` and `op.register_autograd(...)` belong to `op`.
        hooks = [node] if isinstance(node, ast.Expr) else decorators
        self.owners = {
            n.func.value.id if isinstance(n, ast.Call) else n.value.id
            for hook in hooks
            for n in [hook.value if isinstance(hook, ast.Expr) else hook]
            if _owner(n)
        }

    @property
    def is_style(self) -> bool:
        match self.node:
            case ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg="self"), *_])):
                return True
            case ast.ClassDef(name=name, bases=[ast.Attribute(attr="Module")]):
                return name != "Model"
        return False

    @property
    def imports(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    def belongs_to(self, wanted: set[str]) -> bool:
        hooked = bool(self.owners & (wanted - {"torch", "functools", "triton"}))
        return bool(wanted & set(self.names)) or (hooked and not self.is_style)


def _owner(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)


def _bound(node: ast.AST) -> list[str]:
    """The names that a statement binds, also within `try` and `if`."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(each.asname or each.name).partition(".")[0] for each in names]
        case ast.Assign(targets=targets):
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.Try(body=body) | ast.If(body=body):
            return [name for each in body for name in _bound(each)]
    return []


@functools.cache
def source(name: str) -> Source:
    return Source(name)


@functools.cache
def pairs() -> tuple[tuple[str, str], ...]:
    """All pairs of a model and a style."""
    models = sorted(path.stem for path in SMALL.glob("*.py"))
    found = [(model, style) for model in models for style in source(model).styles]
    found += [(model, style.name) for style in STYLES for model in style.models]
    found += [(model, "subclass") for model in SUBCLASSES]
    return (*found, *((model, "emitted") for model in EMITTED))


def generated(seed: int) -> Generated:
    """The pair that a seed names, with sizes of its own: as many seeds as `pairs()` name all."""
    model, style = pairs()[seed % len(pairs())]
    said, rng = source(model).constants, random.Random(seed)
    growth = {name: rng.choice(choices) for name, choices in GROWTH.items()}
    general = {each.name: each for each in STYLES}
    for_inference = style in said.get("FOR_INFERENCE", ())
    text = _model(source(model))
    if style == "emitted":
        new, for_inference = _emitted(model, _grown(text, growth)), False
    elif style in general:
        new, for_inference = _in_style(source(model), general[style]), general[style].for_inference
    else:
        new = _subclass(source(model)) if style == "subclass" else _own(source(model), style)
    return Generated(
        f"{model}_{_snake(style)}",
        _grown(text, growth),
        new,
        for_inference,
        style in said.get("WHOLE", ()),
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _grown(text: str, growth: dict[str, int]) -> str:
    """The sizes of a model file, changed by so much."""

    def larger(match: re.Match[str]) -> str:
        names, numbers = match[1].split(", "), match[2].split(", ")
        changed = [str(int(n) + growth[name]) for name, n in zip(names, numbers, strict=True)]
        return f"{match[1]} = {', '.join(changed)}"

    return re.sub(r"^(ROWS(?:, WIDTH)?) = (\d+(?:, \d+)?)$", larger, text, flags=re.M)


def _model(file: Source) -> str:
    return f'"""{file.doc}"""\n\n{file.closure(MODEL_NAMES)}\n'


def _file(
    file: Source, title: str, body: str, before: str = "", imports: Sequence[str] = ()
) -> str:
    """A file with a class of this text, and before it all of `file` that the class needs."""
    used = {n.id for n in ast.walk(ast.parse(before + "\n" + body)) if isinstance(n, ast.Name)}
    needed = file.closure(used | {"torch", "nn"}, ("ROWS", "WIDTH"))
    head = "\n".join((*imports, needed))
    title = f'"""{file.doc}\n\nWritten again: {title.replace("_", " ")}.\n"""\n\n'
    return title + "\n\n\n".join(p for p in (head, before.strip(), body.strip()) if p) + "\n"


def _class(file: Source, forward: str, beside: str = "") -> str:
    """ModelNew with the constructor of the original and this forward."""
    node: Any = file.model.node
    lines = file.text.splitlines()
    kept = [
        textwrap.dedent("\n".join(lines[each.lineno - 1 : each.end_lineno]))
        for each in node.body
        if getattr(each, "name", "") != "forward"
    ]
    methods = "\n\n".join(part.strip("\n") for part in (*kept, beside, forward) if part)
    return "class ModelNew(nn.Module):\n" + textwrap.indent(methods, "    ")


def _forward(file: Source) -> Any:
    node: Any = file.model.node
    return next(each for each in node.body if getattr(each, "name", "") == "forward")


def _own(file: Source, name: str) -> str:
    """The original with a forward of the file, or a module of the file, as ModelNew."""
    statement = file.named(name)
    if isinstance(statement.node, ast.ClassDef):
        body = re.sub(rf"\b{name}\b", "ModelNew", statement.text)
        return _file(file, _snake(name), body)
    forward = statement.text.replace(f"def {name}(", "def forward(")
    return _file(file, name, _class(file, forward))


def _in_style(file: Source, style: Style) -> str:
    """ModelNew in a style that suits several models."""
    node = _forward(file)
    names = [each.arg for each in node.args.args[1:]]
    words = {
        "params": ast.unparse(node.args),
        "args": ", ".join(names),
        "first": names[0],
    }
    lines = file.text.splitlines()[node.lineno - 1 : node.end_lineno]
    steps = textwrap.dedent("\n".join(lines)).replace("def forward(", "def steps(")
    forward = style.forward.format(**words)
    if style.as_function:
        before = f"{steps.replace('self, ', '', 1)}\n\n\n{style.before}"
        body = _class(file, forward)
    else:
        before, body = style.before, _class(file, forward, steps)
    return _file(file, style.name, body, before, style.imports)


def _subclass(file: Source) -> str:
    body = """class ModelNew(Model):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)
"""
    node = _forward(file)
    params, names = ast.unparse(node.args), ", ".join(each.arg for each in node.args.args[1:])
    body = body.replace("self, *args, **kwargs", params).replace("*args, **kwargs", names)
    return _file(file, "subclass", body)


def _emitted(name: str, model: str) -> str:
    """What opweld writes for the host."""
    from opweld.driver import compile_file
    from opweld.options import Options

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.py")
        path.write_text(model, encoding="utf-8")
        return compile_file(path, Options(target="cpu", check=False)).text
