"""The model file: a Python module with `Model`, `get_inputs` and `get_init_inputs`.

Reading needs no more than its text. Loading and calling run the user's code, so they belong in a
child process; what the user's code raises comes back as one sentence with the user's line.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
import linecache
import sys
import tokenize
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from opweld.errors import ModelFileError, ModelOutOfMemory, OpweldError, UserError, Where

PACKAGE_FILE = "__init__.py"
NAMES = ("Model", "get_inputs", "get_init_inputs")
CONSTRUCTION = "Model(*get_init_inputs())"
FORM = "a model file defines Model, get_inputs() and get_init_inputs()"


def read_source(path: Path) -> str:
    """The text of the Python file at `path`, in the encoding that it declares.

    Raises:
        ModelFileError: there is no such file, or it is not Python.
    """
    place = Where(str(path))
    try:
        _require_name(path)
        source = _text(path)
        ast.parse(source, str(path))
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=place) from error
    except SyntaxError as error:
        place = Where(str(path), error.lineno, error.text)
        raise ModelFileError(f"is not Python: {error.msg}", where=place) from error
    except (RecursionError, MemoryError) as error:
        raise ModelFileError("is nested too deeply for Python", where=place) from error
    except ValueError as error:
        raise ModelFileError(f"is not Python text: {error}", where=place) from error
    return source


def _require_name(path: Path) -> None:
    """What can be known from the outside: Python imports regular files whose names end in .py."""
    place = Where(str(path))
    if not path.exists():
        raise ModelFileError("there is no such file", where=place)
    if path.is_dir():
        raise ModelFileError("is a folder, not a Python file", where=place, next_step="name a file")
    if path.suffix != ".py":
        raise ModelFileError(
            "is not a Python file by its name", where=place, next_step="use a name that ends in .py"
        )
    if not path.is_file():  # reading a pipe would wait for its writer
        raise ModelFileError("is not a regular file", where=place, next_step="name a Python file")


def _text(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (UnicodeDecodeError, SyntaxError) as error:  # the latter for the first two lines
        raise ModelFileError(
            "is not text in UTF-8 or in an encoding that it declares",
            where=Where(str(path)),
            next_step="save it as UTF-8",
        ) from error


def load(path: Path, name: str = "opweld_model") -> ModuleType:
    """Imports the file, with its own folder first on the import path, as Python does for a script.

    Raises:
        ModelFileError: the import raises, or one of the three names is missing or of no use.
    """
    read_source(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    call_user(path, "importing the file", spec.loader.exec_module, module)
    require_names(path, module)
    return module


def require_names(path: Path, module: ModuleType) -> None:
    """That the module has the three names, and that the two functions can be called.

    Raises:
        ModelFileError: it is not so.
    """
    place = Where(str(path))
    missing = [each for each in NAMES if not hasattr(module, each)]
    if missing:
        sentence = f"does not define {' and '.join(missing)}"
        raise ModelFileError(sentence, where=place, next_step=FORM)
    for name in NAMES[1:]:
        if not callable(getattr(module, name)):
            sentence = f"{name} is {_a(getattr(module, name))}"
            raise ModelFileError(sentence, where=place, next_step="make it a function")


def module_class(
    name: str, function: Callable[..., Any], base: Any, like: Callable[..., Any] | None = None
) -> type:
    """A class `name` of modules whose forward calls `function`, under the function's signature or,
    where it has none as built-in ones may, that of `like`.

    `base` is torch.nn.Module; a function that is one becomes a submodule, copied for each module.
    """

    def __init__(self: Any) -> None:
        base.__init__(self)
        self.call = copy.deepcopy(function) if isinstance(function, base) else function

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    own = _signature(function) or (_signature(like) if like else None)
    if own is not None:
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        whole = own.replace(parameters=[first, *own.parameters.values()])
        forward.__signature__ = whole  # type: ignore[attr-defined]
    return type(name, (base,), {"__init__": __init__, "forward": forward})


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        return None


def with_function(path: Path, module: ModuleType, name: str, function: str, base: type) -> None:
    """Give the module a class `name` that calls its `function`, and no constructor arguments.

    Raises:
        ModelFileError: the file has no such function.
    """
    found = getattr(module, function, None)
    if not callable(found) or inspect.isclass(found):
        what = "does not define" if found is None else f"has {_a(found)} by the name"
        step = "name a function of the file, as FILE.py:NAME"
        raise ModelFileError(f"{what} {function}", where=Where(str(path)), next_step=step)
    setattr(module, name, module_class(name, found, base))
    module.get_init_inputs = list  # type: ignore[attr-defined]


def require_class(path: Path, value: Any, base: type, name: str = "Model") -> None:
    """That the file's `name` is a class that derives from `base`, torch.nn.Module.

    Raises:
        ModelFileError: it is not so.
    """
    if inspect.isclass(value) and issubclass(value, base):
        return
    if inspect.isclass(value):
        sentence, step = f"{name} is a class that is not a torch.nn.Module", "derive it from that"
    else:
        what = "a function" if inspect.isroutine(value) else _a(value)
        sentence, step = f"{name} is {what}", "make it a class that derives from torch.nn.Module"
    raise ModelFileError(sentence, where=Where(str(path)), next_step=step)


def make_model(path: Path, module: ModuleType, base: type) -> Any:
    """`Model(*get_init_inputs())`, or with keywords where the inputs are a list and a dict.

    Raises:
        ModelFileError: it raises, or its result is no `base`, which is torch.nn.Module.
    """
    require_class(path, module.Model, base)
    init = call_user(path, "get_init_inputs()", module.get_init_inputs)
    args, kwargs = init_arguments(path, init)
    model = call_user(path, CONSTRUCTION, lambda: module.Model(*args, **kwargs))
    return require_instance(path, model, base)


def require_instance(path: Path, model: Any, base: type) -> Any:
    """`model`, if it is a module (a `__new__` of the user's may make anything) with a forward.

    Raises:
        ModelFileError: it is not.
    """
    place = Where(str(path))
    if not isinstance(model, base):
        sentence = f"{CONSTRUCTION} gives {_a(model)}"
        raise ModelFileError(sentence, where=place, next_step="let it give a torch.nn.Module")
    forward = getattr(type(model), "forward", None)
    if forward is getattr(base, "forward", ...) and "forward" not in vars(model):
        sentence = "Model has no forward"
        raise ModelFileError(sentence, where=place, next_step="define forward(self, ...) in it")
    return model


def make_inputs(path: Path, module: ModuleType) -> tuple[Any, ...]:
    """The arguments of the forward that `get_inputs()` gives.

    Raises:
        ModelFileError: it raises, or gives something other than a list or a tuple.
    """
    inputs = call_user(path, "get_inputs()", module.get_inputs)
    if not isinstance(inputs, (list, tuple)):
        raise no_list(path, "get_inputs()", inputs)
    return tuple(inputs)


def no_list(path: Path, what: str, value: Any) -> ModelFileError:
    """The error for a function of the file that gives something other than a list."""
    sentence = f"{what} gives {_a(value)}"
    return ModelFileError(sentence, where=Where(str(path)), next_step="give a list")


def init_arguments(path: Path, init: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of `Model` in what `get_init_inputs()` gave.

    Raises:
        ModelFileError: it is no list, tuple or dictionary.
    """
    if isinstance(init, dict):
        return [], init
    if not isinstance(init, (list, tuple)):
        raise no_list(path, "get_init_inputs()", init)
    pair = len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict)
    return (list(init[0]), init[1]) if pair else (list(init), {})


def _a(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def call_user(path: Path, what: str, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`; what it raises becomes one sentence with the user's line."""
    try:
        return function(*args)
    except OpweldError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        raise explain(path, what, error) from error


def explain(path: Path, what: str, error: BaseException) -> UserError:
    """The sentence for something that the user's code raised while opweld ran `what`."""
    where = user_line(path, error)
    if out_of_memory(error):
        return ModelOutOfMemory(
            f"{what} runs out of memory", where=where, next_step="use --batch N for smaller inputs"
        )
    if isinstance(error, SystemExit):
        return ModelFileError(f"{what} ends the program by SystemExit", where=where)
    reason = str(error).strip().splitlines()
    said = f": {reason[0]}" if reason else ""
    sentence = f"{what} raises {type(error).__name__}{said}"
    unfit = what == CONSTRUCTION and isinstance(error, TypeError) and where.line is None
    step = "let get_init_inputs() give what its constructor takes" if unfit else None
    return ModelFileError(sentence, where=where, next_step=step)


def out_of_memory(error: BaseException) -> bool:
    """Whether it is a want of memory, in any of the forms that Python and torch give it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(sign in text for sign in ("can't allocate memory", "out of memory"))


def user_line(path: Path, error: BaseException) -> Where:
    """The innermost line of the user's file in the error's traceback."""
    own = str(path.resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if str(Path(frame.filename).resolve()) == own
    ]
    if not lines or lines[-1] is None:
        return Where(str(path))
    return Where(str(path), lines[-1], linecache.getline(own, lines[-1]).strip() or None)


def main_file(path: Path) -> Path:
    """The file that is imported for `path`: of a package its `__init__.py`."""
    return path / PACKAGE_FILE if path.is_dir() else path


def short_name(path: Path) -> str:
    """What a file is called in a message, or the package whose `__init__.py` it is."""
    return path.parent.name if path.name == PACKAGE_FILE else path.name


def folder_of(path: Path) -> Path:
    """The folder whose other files a file can import, as those beside a package."""
    return path.parent.parent if path.name == PACKAGE_FILE else path.parent


def spec_of(path: Path, name: str) -> ModuleSpec | None:
    """How Python imports a file, or the package whose `__init__.py` it is, as module `name`."""
    folders = [str(path.parent)] if path.name == PACKAGE_FILE else None
    return importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)


def import_file(path: Path, name: str) -> ModuleType:
    """The file at `path` as module `name`; its text stays known to tracebacks when it is gone."""
    spec = spec_of(path, name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    text = path.read_text("utf-8")
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    spec.loader.exec_module(module)
    return module
