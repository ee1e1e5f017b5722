"""The kernels of a mutant, built as its file builds them, and whether they are other code."""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from opweld.model_file import import_file

# What object code has of where it was built: the name of the library, with a hash of its text, and
# the path of the source. Both are as long in all libraries of a model, so that all else stays.
_PLACE = re.compile(rb"/[^\0]*\.cpp|opweld_\w+?_[0-9a-f]{12}")
# Folders of builds: of the file without a fault, and of a mutant.
SOUND, FAULT = "sound", "fault"
_BUILDS = "TORCH_EXTENSIONS_DIR"
_LIMIT_S = 300.0
COMPILER = os.environ.get("CXX", "c++")
_HEADER = re.compile(r"^#include <[^>]+>$", re.MULTILINE)

# What building can end with.
NEW_CODE, SAME_CODE, NO_BUILD = "new code", "same code", "does not compile"


def build(file: Path, folder: Path, compiler: str = COMPILER, limit_s: float = _LIMIT_S) -> None:
    """Imports an emitted file in a process of its own, so that its libraries stand in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = (file, folder, compiler)
    child = multiprocessing.get_context("fork").Process(target=_import, args=arguments)
    child.start()
    child.join(limit_s)
    if child.is_alive():
        child.kill()
        child.join()


def _import(file: Path, folder: Path, compiler: str) -> None:
    os.environ |= {_BUILDS: str(folder), "CXX": compiler}
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")  # a build that fails is told by what is not there
    import_file(file, file.stem)


def precompiled(texts: Iterable[str], built: Path, folder: Path) -> str:
    """A compiler that has read the headers of all emitted files already; else it is as the other.

    Its flags are those of a library in `built`. Headers take most of a build of few kernels.
    """
    ninja = next(built.glob("opweld/*/build.ninja")).read_text()
    given = re.search(r"^cflags = (.*)$", ninja, re.MULTILINE)
    assert given is not None, "torch writes the flags into the file"
    flags = [flag for flag in shlex.split(given[1]) if "TORCH_EXTENSION_NAME" not in flag]
    lines = {line: None for text in texts for line in _HEADER.findall(text)}
    header, script = folder / "headers.h", folder / "c++"
    header.write_text("\n".join(lines) + "\n")
    command = [COMPILER, *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(command, check=True)
    script.write_text(f'#!/bin/sh\nexec {COMPILER} -include {header} "$@"\n')
    script.chmod(0o755)
    return str(script)


def rebuilt(file: Path, sound: Path, folder: Path, compiler: str = COMPILER) -> str:
    """Builds a mutant in `folder`, beside the libraries of the sound file that stand in `sound`."""
    shutil.copytree(sound, folder)
    before = objects(folder)
    build(file, folder, compiler)
    after = objects(folder)
    new = [after[path] for path in after if path not in before]
    if not new:
        return NO_BUILD
    return NEW_CODE if set(new) - set(before.values()) else SAME_CODE


def objects(folder: Path) -> dict[Path, bytes]:
    """The object code of each library that was built to its end, without names of places."""
    return {
        path: _PLACE.sub(b"place", path.read_bytes())
        for path in sorted(folder.glob("opweld/*/*.o"))
        if list(path.parent.glob("*.so"))
    }
