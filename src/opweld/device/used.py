"""Which declarations of C++ texts are used: all that is reached from given texts by name.

A declaration stands at the outermost level of a text, with the comment before it. One that is named
in a text is used, and what it names itself. A specialisation, or one of several functions of a
name, is used where that name is, and with it the types that its head names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_WORD = re.compile(r"[A-Za-z_]\w*")
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_ATTRIBUTE = re.compile(r"\[\[\w+\]\]|\b(?:alignas|__align__|__launch_bounds__)\s*\(")
_FUNCTION = re.compile(r"(operator\W+|\b\w+)\s*\(")
_TYPE = re.compile(r"\b(?:struct|class|union|enum(?: class)?)\s+(\w+)\s*(<[^;{]*>)?[^;{(]*[;{]")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=")
_VALUES = re.compile(r"\b(\w+)\s*(?:<[^<>]*>\s*)?(?:\[[^\]]*\]\s*)*=[^=]")
_PARTIAL_VALUE = re.compile(r"(?:static )?constexpr [\w:]+ (\w+)<")
_EXPORTED = re.compile(r'^extern "C"', re.MULTILINE)
_MACRO = re.compile(r"#define\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Declaration:
    """`names` are those that it declares, none where it is always kept: an include, a condition of
    the preprocessor, what is there for other languages. `words` are all that it says, `head` those
    before the first brace that are no parameters of its template. A special one is of a name that
    others declare. A struct has `parts`, of which declarations are functions, types and constants
    that it may be without; `words` are those of the others.
    """

    text: str
    names: frozenset[str]
    head: frozenset[str]
    words: frozenset[str]
    is_special: bool
    parts: tuple[str | Declaration, ...] = ()

    @property
    def members(self) -> tuple[Declaration, ...]:
        return tuple(part for part in self.parts if isinstance(part, Declaration))

    def kept_text(self, kept: set[int]) -> str:
        """Its text with the members that are kept, by identity."""
        if not self.parts:
            return self.text
        texts = (
            part if isinstance(part, str) else part.text
            for part in self.parts
            if isinstance(part, str) or id(part) in kept
        )
        return "\n".join(texts)


def declarations(text: str) -> tuple[Declaration, ...]:
    """The declarations of a text, whose own texts, joined by newlines, are the text again."""
    return tuple(_declaration(chunk) for chunk in _chunks(text))


def used(texts: Iterable[str], users: Iterable[str]) -> tuple[str, ...]:
    """Each text with those of its declarations that are reached from `users`, which are code."""
    parsed = [declarations(text) for text in texts]
    every = [each for found in parsed for each in found]
    counts = Counter(name for each in every if not _is_forward(each) for name in each.names)
    known = {name for each in every for name in each.names}
    reached = {word for user in users for word in _words(user)}
    kept: set[int] = set()

    def is_new(each: Declaration) -> bool:
        return id(each) not in kept and _is_reached(each, reached, counts, known)

    def new_members() -> list[Declaration]:
        members = [part for each in every if id(each) in kept for part in each.members]
        return [part for part in members if id(part) not in kept and part.names & reached]

    while new := [*filter(is_new, every), *new_members()]:
        kept |= {id(each) for each in new}
        reached |= {word for each in new for word in each.words}
    lists = ([e.kept_text(kept) for e in found if id(e) in kept] for found in parsed)
    return tuple("\n".join(found).lstrip("\n") + "\n" for found in lists if found)


def _is_reached(
    each: Declaration, reached: set[str], counts: Counter[str], known: set[str]
) -> bool:
    if not each.names:
        return True
    if not each.names & reached:
        return False
    shared = each.is_special or any(counts[name] > 1 for name in each.names)
    return not shared or (each.head - each.names) & known <= reached


def _is_forward(each: Declaration) -> bool:
    """Whether it says of a template that there is one."""
    return "{" not in each.text and "(" not in each.text and "=" not in each.text


# --- parsing ---


def _chunks(text: str) -> Iterator[str]:
    """Declarations, each with the comment and the conditions of the preprocessor around it, and the
    empty line before it.
    """
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        lines.append(line)
        code = _NO_CODE.sub("", line)
        depth += _conditions(code) + sum(map(code.count, "({")) - sum(map(code.count, ")}"))
        if depth == 0 and _ends(code, lines):
            yield "\n".join(lines)
            lines = []
    if any(line.strip() for line in lines):
        yield "\n".join(lines)


def _conditions(code: str) -> int:
    start = code.lstrip()
    return start.startswith("#if") - start.startswith("#endif")


def _ends(code: str, lines: list[str]) -> bool:
    """Whether a line at depth 0 ends a declaration."""
    if any(line.startswith("#") for line in lines):
        return not lines[-1].endswith("\\")
    return code.strip().endswith((";", "}"))


def _declaration(text: str) -> Declaration:
    code = _NO_CODE.sub("", text)
    names = frozenset() if _EXPORTED.search(text) else _names(code)
    plain = _without_template(code.strip())
    parameters = code.strip()[: len(code.strip()) - len(plain)]
    end = "=" if _PARTIAL_VALUE.match(plain) else "{"  # what it is then need not be reached yet
    head = frozenset(_WORD.findall(plain.partition(end)[0])) - frozenset(_WORD.findall(parameters))
    special = "operator" in head or code.strip().startswith("template <>") or _is_partial(code)
    parts = _parts(text, names)
    said = code if not parts else "\n".join(part for part in parts if isinstance(part, str))
    return Declaration(text, names, head, frozenset(_words(said)), special, parts)


def _parts(text: str, names: frozenset[str]) -> tuple[str | Declaration, ...]:
    """The parts of a struct whose members stand on lines of their own; nothing of others."""
    plain = _without_attributes(_without_template(_NO_CODE.sub("", text).strip()))
    lines = text.splitlines()
    opening = next((i for i, line in enumerate(lines) if line.endswith("{")), None)
    if not plain.startswith("struct ") or opening is None or lines[-1] != "};":
        return ()
    inner = [_member(chunk, names) for chunk in _chunks("\n".join(lines[opening + 1 : -1]))]
    return ("\n".join(lines[: opening + 1]), *inner, lines[-1])


def _member(text: str, owner: frozenset[str]) -> str | Declaration:
    """A member of a struct as a declaration, if the struct may be without it."""
    code = _NO_CODE.sub("", text).strip()
    names = _names(code)
    is_function = "(" in code.partition("{")[0] and code.endswith("}")
    is_constant = code.startswith(("static constexpr ", "using ")) and code.endswith(";")
    if not names or names & owner or "operator" in code or not (is_function or is_constant):
        return text
    if re.search(r"^\s*(?:public|private|protected):", code, re.MULTILINE):
        return text
    return Declaration(text, names, frozenset(), frozenset(_WORD.findall(code)), False)


def _is_partial(code: str) -> bool:
    """Whether it specialises a template for some of its arguments."""
    plain = _without_attributes(_without_template(code.strip()))
    found = _TYPE.match(plain)
    return bool((found and found[2]) or _PARTIAL_VALUE.match(plain))


def _names(code: str) -> frozenset[str]:
    """What a declaration declares."""
    start = code.strip()
    if start.startswith("#"):
        macro = _MACRO.match(start)
        return frozenset({macro[1]} if macro else ())
    plain = _without_attributes(_without_template(start))
    head = plain.partition("{")[0]
    if value := _PARTIAL_VALUE.match(plain):
        return frozenset({value[1]})
    if alias := _ALIAS.match(plain):
        return frozenset({alias[1]})
    if "(" not in head and (kind := _TYPE.match(plain)):
        return frozenset({kind[1]})
    called = _FUNCTION.search(head)
    if called and "=" not in head[: called.start()]:
        return frozenset({called[1].strip()})
    return frozenset(_VALUES.findall(plain))


def _without_template(code: str) -> str:
    """Without `template <...>` at its start."""
    while code.startswith("template"):
        end = _closing(code, code.index("<"), "<>")
        code = code[end:].strip()
    return code


def _without_attributes(code: str) -> str:
    """Without what is said of a declaration before its name."""
    while found := _ATTRIBUTE.search(code):
        end = _closing(code, found.end() - 1, "()") if found[0].endswith("(") else found.end()
        code = f"{code[: found.start()]} {code[end:]}"
    return code.strip()


def _closing(code: str, at: int, pair: str) -> int:
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for end in range(at, len(code)):
        depth += (code[end] == pair[0]) - (code[end] == pair[1])
        if depth == 0:
            return end + 1
    return len(code)


def _words(text: str) -> list[str]:
    return _WORD.findall(_NO_CODE.sub("", text))
