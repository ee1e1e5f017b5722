"""A build that failed, in a few lines: what the compiler said, at which line, and what to do.

Kernels are built while a candidate's file is imported, or at its first call: by torch's extension
builder, by a compiler that the file calls itself, by NVRTC, or by Triton. What they raise is pages
of commands and notes around one line that matters. `explain` finds it. What it knows of compilers
and their ways to fail are the rows of `build_rules.py`.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opweld.judge.build.rules import FAILURES, HINTS, Failure

LIMIT = 300  # characters of a compiler's message that are shown
# A wrong -std makes g++ print 18 MB on torch's headers; the first error stands near the beginning.
READ_CHARACTERS = 2**20
SHOWN_CHARACTERS = 4000  # below a message, where the compiler repeats the source line
MANY = 20
REBUILD_LIMIT_S = 120.0
# Lines that torch's load_inline puts in front of the text that it is given.
LINES_IN_FRONT = {"main.cpp": 1, "cuda.cu": 3}


_SIGNS = {
    # nvcc, NVRTC: cuda.cu(7): error: identifier "x" is undefined
    "CUDA": re.compile(
        r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: "
        r"(?P<text>.+)$",
        re.MULTILINE,
    ),
    # g++, clang: main.cpp:7:5: error: 'x' was not declared in this scope
    "C++": re.compile(
        r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.+)$",
        re.MULTILINE,
    ),
}
_TRITON = re.compile(
    r"\Aat (?P<line>\d+):\d+:\n(?P<excerpt>.*\n)?[ \t]*\^\n(?P<text>.+)", re.DOTALL
)
_TRITON_WORDLESS = re.compile(r"\Aat \d+:\d+:\n.*\^\s*\Z", re.DOTALL)
# g++'s and nvcc's way to say which line made a template of a header fail.
_ASKED = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):\d+:\s+required from here$"
    r"|at line (?P<nvcc_line>\d+) of (?P<nvcc_file>\S+\.cu)$",
    re.MULTILINE,
)
_GUTTER = re.compile(r"^\s*\d+ \| (?P<source>.*)$")
_CARET = re.compile(r"^\s*[\^~]+\s*$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[mK]")
_STANDARD = re.compile(r"-std=\S+")
_PATH = re.compile(r"(?<![\w.])/[^\s:'\"()`]+/")
_TORCH_HEADER = re.compile(r".*/torch/include/(?:torch/csrc/api/include/)?(?:torch/)?")
_NO_WORDS = re.compile(r"\AError building extension '[^']*'\s*\Z")


@dataclass(frozen=True, slots=True)
class _Message:
    """One error of a compiler: the file that it names, as short as it can be, and its line."""

    language: str
    file: str
    line: int
    text: str
    source: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def is_own(self) -> bool:
        """Whether it points at the candidate's text, not at a header of others."""
        return "/" not in self.file


def explain(error: BaseException, new_path: Path) -> str | None:
    """Why the kernels of `new_path` were not built, or None where `error` is something else.

    The first line is the whole in one sentence, for a verdict; two to four lines follow for a
    person: what was said, the source line with its place, the hint. The source line is looked up
    in the candidate's own text, as the files that the compilers saw are temporary.
    """
    for each in _innermost_first(error):
        said = _ESCAPE.sub("", _words(each)[:READ_CHARACTERS])
        messages = _messages(said)
        if messages:
            return _of_message(messages, said, new_path)
        for failure in FAILURES:
            match = re.search(failure.pattern, said)
            if match:
                return _of_failure(failure, match, new_path)
    return None


def _of_failure(failure: Failure, match: re.Match[str], path: Path) -> str:
    groups = {name: _short(_demangled(text or "")) for name, text in match.groupdict().items()}
    what = failure.what.format(**groups)
    return "\n".join([f"{path}: {what}; {failure.hint}", f"error: {what}", f"hint: {failure.hint}"])


def _of_message(messages: list[_Message], said: str, path: Path) -> str:
    hint = _hint(messages[0], said)
    first = messages[0] if messages[0].is_own else _asked(messages[0], said)
    line = _line_in(path, first)
    place, where = (f"{path}:{line}", f"{path.name}:{line}") if line else (f"{path}", first.place)
    more = _more(len(messages) - 1)
    at = "" if line else f" at {first.place}"
    sentence = f"{place}: its {first.language} does not compile: {first.text}{at}{more}"
    lines = [
        f"{sentence}; {hint}" if hint else sentence,
        f"error: {first.text}{more}",
        f"{where} | {first.source}" if first.source else f"at {where}",
    ]
    return "\n".join([*lines, f"hint: {hint}"] if hint else lines)


def _more(count: int) -> str:
    if count > MANY:
        return f" (and more than {MANY} more)"
    return f" (and {count} more)" if count else ""


def _hint(message: _Message, said: str) -> str | None:
    """That of the first rule which knows the message."""
    standards = " ".join(dict.fromkeys(_STANDARD.findall(said)))
    subject = f"{message.text}\nat {message.file} {message.source}\n{standards}"
    return next((rule.hint for rule in HINTS if re.search(rule.pattern, subject)), None)


def _innermost_first(error: BaseException) -> list[BaseException]:
    """What was raised first comes first; a file may wrap what its builder raised."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.insert(0, following)
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)
    return chain


def _words(error: BaseException) -> str:
    """All that an error says, with what a failed command printed."""
    text = text_of(error)
    printed = (getattr(error, "stderr", None), getattr(error, "output", None))
    words = [part.decode(errors="replace") if isinstance(part, bytes) else part for part in printed]
    text = "\n".join([text, *(part for part in words if isinstance(part, str))])
    if _TRITON_WORDLESS.match(text):
        return f"{text}\n{error.__cause__ or type(error).__name__}"
    return text + _built_again(error) if _NO_WORDS.match(text) else text


def _built_again(error: BaseException) -> str:
    """What the compiler said: under `verbose=True` torch lets it print, and its error is empty."""
    folder = next(filter(None, map(_build_folder, _frames(error))), None)
    ninja = shutil.which("ninja")
    if folder is None or ninja is None:
        return ""
    try:
        done = subprocess.run(
            [ninja, "-v"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=REBUILD_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f": {done.stdout.decode(errors='replace')}"


def _frames(error: BaseException) -> Iterator[dict[str, object]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_locals
        trace = trace.tb_next


def _build_folder(names: dict[str, object]) -> str | None:
    folder = names.get("build_directory")
    return folder if isinstance(folder, str) and Path(folder, "build.ninja").exists() else None


def _messages(said: str) -> list[_Message]:
    """The errors of the compilers in the order in which they were printed, each once."""
    triton = _TRITON.match(said)
    if triton:
        excerpt = (triton["excerpt"] or "").rstrip("\n").rpartition("\n")[2].strip()
        text = _short(triton["text"])
        return [_Message("Triton kernel", "kernel", int(triton["line"]), text, excerpt)]
    found = [(m, language) for language, sign in _SIGNS.items() for m in sign.finditer(said)]
    found.sort(key=lambda each: each[0].start())
    messages = (
        _message(match, language, said[match.end() + 1 : match.end() + SHOWN_CHARACTERS])
        for match, language in found
    )
    return list(dict.fromkeys(messages))


def _message(match: re.Match[str], language: str, rest: str) -> _Message:
    file, line = match["file"], int(match["line"])
    language = "CUDA" if file.endswith((".cu", ".cuh")) else language
    source = _shown(rest) or _line_of(Path(file), line)
    return _Message(language, _short_path(file), line, _short(match["text"]), source)


def _shown(rest: str) -> str:
    """The source line as the compiler repeats it below its message."""
    lines = rest.splitlines()[:3]
    gutter = next(filter(None, map(_GUTTER.match, lines)), None)
    if gutter:
        return gutter["source"].strip()
    followed = any(_CARET.match(line) for line in lines[1:])
    return lines[0].strip() if followed else ""


def _line_of(file: Path, line: int) -> str:
    lines = _read(file).splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _asked(message: _Message, said: str) -> _Message:
    """The message of a header at the candidate's line that led there, where the compiler tells."""
    near = said[: said.find(f"error: {message.text}") + SHOWN_CHARACTERS]
    match = _ASKED.search(near)
    if match is None:
        return message
    file, line = match["file"] or match["nvcc_file"], int(match["line"] or match["nvcc_line"])
    if "/" in _short_path(file):
        return message
    source = _line_of(Path(file), line)
    return replace(message, file=Path(file).name, line=line, source=source)


def _line_in(path: Path, message: _Message) -> int | None:
    """The line of the candidate's file that holds the source line.

    Of several the one that stands as far below the beginning of a string, or of a function, as the
    compiler's line number says.
    """
    wanted = {message.source, message.source.replace("{", "{{").replace("}", "}}")} - {""}
    text = _read(path)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.strip() in wanted]
    if len(lines) < 2 or not message.is_own:
        return lines[0] if lines else None
    below = message.line - 1 - LINES_IN_FRONT.get(message.file, 0)
    starts = _starts(text)
    return min(lines, key=lambda n: min((abs(n - start - below) for start in starts), default=0))


def _starts(text: str) -> list[int]:
    """Where strings and functions begin."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.FunctionDef, ast.JoinedStr)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]


def _short(text: str) -> str:
    """One line, without the folders in front of file names."""
    text = _PATH.sub("", " ".join(text.split()))
    return text if len(text) <= LIMIT else text[:LIMIT] + " ..."


def _short_path(file: str) -> str:
    """A header of torch as one includes it; of a library, its last two parts; else the name."""
    if _TORCH_HEADER.match(file):
        return "torch/" + _TORCH_HEADER.sub("", file)
    path = Path(file)
    return "/".join(path.parts[-2:]) if "include" in path.parts else path.name


def _demangled(symbol: str) -> str:
    """A C++ name as it was written; as it is where c++filt is not there."""
    tool = shutil.which("c++filt")
    if tool is None or not symbol.startswith("_Z"):
        return symbol
    done = subprocess.run([tool, symbol], capture_output=True, text=True, timeout=10)
    return done.stdout.strip() or symbol


def text_of(error: BaseException) -> str:
    """Its message; nothing where it refuses to be printed."""
    try:
        return str(error)
    except BaseException:
        return ""
