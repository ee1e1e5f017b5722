"""Classes that stand in the emitted file beside the user's, with the forwards that call kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

# Names that the parts of a file begin with.
_TAKEN = re.compile(r"_(CUDA|CPU|MAIN|DEVICE|HOST|ORIGINAL|Original|k\d+_)")


@dataclass(slots=True)
class Methods:
    """Forwards of the user's classes, each text once: modules that compute alike call one."""

    names: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    texts: dict[str, list[list[str]]] = field(default_factory=dict)

    def name_of(self, type_name: str, parameters: str, lines: list[str]) -> str:
        """`_Block.forward`: the method of the class "module:qualname" that has these lines."""
        code = tuple(line for line in lines if not line.lstrip().startswith("# "))
        key = (type_name, (parameters, *code))
        if key not in self.names:
            texts = self.texts.setdefault(self._class_of(type_name), [])
            method = "forward" if not texts else f"forward_{len(texts) + 1}"
            texts.append([f"def {method}({parameters}):", *(f"    {line}" for line in lines)])
            self.names[key] = f"{self._class_of(type_name)}.{method}"
        return self.names[key]

    def _class_of(self, type_name: str) -> str:
        if type_name not in self.classes:
            wish, number = f"_{type_name.rpartition(':')[2].rpartition('.')[2].lstrip('_')}", 1
            name = wish
            while name in _support_names() or name in self.classes.values() or _TAKEN.match(name):
                number += 1
                name = f"_Module{wish}" if _TAKEN.match(name) else f"{wish}_{number}"
            self.classes[type_name] = name
        return self.classes[type_name]

    def text(self) -> list[str]:
        """The classes, in the order in which they are called first from inside out."""
        found = []
        for type_name, name in self.classes.items():
            own = type_name.rpartition(":")[2]
            lines = [
                f"class {name}:",
                f'    """The forward of {own} with kernels; self is a module of that class."""',
            ]
            for text in self.texts[name]:
                lines += ["", *(f"    {line}" for line in text)]
            found.append("\n".join(lines))
        return found


@cache
def _support_names() -> frozenset[str]:
    """What the fixed texts of emitted files define."""
    texts = resources.files(__package__) / "texts"
    folders = (texts, *(each for each in texts.iterdir() if each.is_dir()))
    files = (each for folder in folders for each in folder.iterdir() if each.is_file())
    words = re.compile(r"^(?:(?:def|class) (\w+)|(\w+) =)", re.MULTILINE)
    found = [match for each in files for match in words.findall(each.read_text(encoding="utf-8"))]
    return frozenset(name for match in found for name in match if name)
