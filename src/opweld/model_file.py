"""The model file: a Python module with `Model`, `get_inputs` and `get_init_inputs`.

Reading needs no more than its text. Loading and calling run the user's code, so they belong in a
child process; what the user's code raises comes back as one sentence with the user's line.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from opweld.errors import ModelFileError, ModelOutOfMemory, OpweldError, UserError, Where

NAMES = ("Model", "get_inputs", "get_init_inputs")
FORM = "a model file defines Model, get_inputs() and get_init_inputs()"


def read_source(path: Path) -> str:
    """The text of the file at `path`.

    Raises:
        ModelFileError: there is no such file, or it is not Python.
    """
    place = Where(str(path))
    if not path.exists():
        raise ModelFileError("there is no such file", where=place)
    if path.is_dir():
        raise ModelFileError("is a folder, not a model file", where=place)
    try:
        source = path.read_text("utf-8")
        ast.parse(source, str(path))
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=place) from error
    except SyntaxError as error:
        place = Where(str(path), error.lineno, error.text)
        raise ModelFileError(f"is not Python: {error.msg}", where=place) from error
    except ValueError as error:
        raise ModelFileError(f"is not Python text: {error}", where=place) from error
    return source


def load(path: Path, name: str = "opweld_model") -> ModuleType:
    """Imports the file, with its own folder first on the import path, as Python does for a script.

    Raises:
        ModelFileError: the import raises, or one of the three names is missing.
    """
    read_source(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    call_user(path, "importing the file", spec.loader.exec_module, module)
    missing = [each for each in NAMES if not callable(getattr(module, each, None))]
    if missing:
        raise ModelFileError(
            f"does not define {' and '.join(missing)}", where=Where(str(path)), next_step=FORM
        )
    return module


def make_model(path: Path, module: ModuleType) -> Any:
    """`Model(*get_init_inputs())`, or with keywords where the inputs are a list and a dict."""
    init = call_user(path, "get_init_inputs()", module.get_init_inputs)
    args, kwargs = _split_init(path, init)
    return call_user(path, "Model(*get_init_inputs())", lambda: module.Model(*args, **kwargs))


def make_inputs(path: Path, module: ModuleType) -> tuple[Any, ...]:
    """The arguments of the forward that `get_inputs()` gives.

    Raises:
        ModelFileError: it raises, or gives something other than a list or a tuple.
    """
    inputs = call_user(path, "get_inputs()", module.get_inputs)
    if not isinstance(inputs, (list, tuple)):
        raise ModelFileError(
            f"get_inputs() gives {_a(inputs)}", where=Where(str(path)), next_step="give a list"
        )
    return tuple(inputs)


def _split_init(path: Path, init: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(init, dict):
        return [], init
    if not isinstance(init, (list, tuple)):
        sentence = f"get_init_inputs() gives {_a(init)}"
        raise ModelFileError(sentence, where=Where(str(path)), next_step="give a list")
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
    return ModelFileError(f"{what} raises {type(error).__name__}{said}", where=where)


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


def import_file(path: Path, name: str) -> ModuleType:
    """The file at `path` as module `name`; its text stays known to tracebacks when it is gone."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    text = path.read_text("utf-8")
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    spec.loader.exec_module(module)
    return module
