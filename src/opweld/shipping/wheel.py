"""A wheel of an emitted file and its libraries: one for all Pythons, as the libraries use none.

Written by hand, as it is a folder in a zip with three short files: a build backend would have to be
told by a project of files that it is pure, that it is not, and that its libraries are not Python's.
The same files give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from opweld import __version__
from opweld.delivery import check_output, write_whole
from opweld.errors import UserError, Where
from opweld.shipping.architectures import Architectures, architectures
from opweld.shipping.build import Built, build, platform_tag
from opweld.shipping.emitted import read_emitted, shipped_text

# The stable ABI of this release, and of all since, has all that the libraries call.
LEAST_TORCH = "2.11"
# Of a module and of a distribution, which neither begins nor ends with _.
_NAME = re.compile(r"[A-Za-z](\w*[A-Za-z0-9])?", re.ASCII)
_EPOCH = (1980, 1, 1, 0, 0, 0)


def package(path: Path, asked: str | None, folder: Path) -> Path:
    """Builds the libraries of an emitted file and writes its wheel into `folder`.

    Raises:
        UserError: the file is not of ours, an architecture is unknown, or a compiler is missing.
    """
    emitted = read_emitted(path)
    name = path.stem
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            "has a name that Python cannot import or pip cannot install",
            where=Where(str(path)),
            next_step="rename it in letters, digits and _, with no _ at its ends",
        )
    archs = architectures(asked, emitted.target)
    tag = platform_tag()
    with tempfile.TemporaryDirectory(prefix="opweld-") as scratch:
        built = build(emitted, name, archs, Path(scratch))
        facts = _facts(built, archs, tag)
        files = {f"{name}/__init__.py": shipped_text(emitted, facts).encode()}
        for library, file in built.files.values():
            files[f"{name}/{library}.so"] = file.read_bytes()
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:8]
    version = f"1.0+g{digest}"
    about = _metadata(name, version, path, archs, built)
    out = folder / f"{name}-{version}-py3-none-{tag}.whl"
    check_output(out)
    write_whole(out, _zipped(files, f"{name}-{version}.dist-info", about, tag))
    return out


def _facts(built: Built, archs: Architectures, tag: str) -> dict[str, object]:
    return {
        "libraries": {first: (name, f"{name}.so") for first, (name, _) in built.files.items()},
        "archs": archs.names,
        "capabilities": archs.capabilities if archs.on_cuda else (),
        "cpu_flags": archs.cpu_flags,
        "cuda": built.cuda,
        "glibc": built.glibc,
        "torch": LEAST_TORCH,
        "machine": tag.removeprefix("linux_"),
    }


def _metadata(name: str, version: str, path: Path, archs: Architectures, built: Built) -> str:
    cuda = f"CUDA {built.cuda}" if built.cuda else "none, it runs on the CPU"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name.replace('_', '-')}",
        f"Version: {version}",
        f"Summary: ModelNew of {path.name} with its kernels built for {', '.join(archs.names)}",
        "Requires-Python: >=3.11",
        f"Requires-Dist: torch>={LEAST_TORCH}",
        "Classifier: Operating System :: POSIX :: Linux",
        *([f"Classifier: Environment :: GPU :: NVIDIA CUDA :: {built.cuda}"] if built.cuda else []),
        "Description-Content-Type: text/plain",
        "",
        f"Architectures: {', '.join(archs.names)}",
        f"CUDA: {cuda}",
        f"glibc: {built.glibc} or newer",
        f"torch: {LEAST_TORCH} or newer, by its stable ABI",
        f"Built by opweld {__version__}. Where something of it does not fit, ModelNew runs the",
        "original and says why.",
    ]
    return "\n".join(lines) + "\n"


def _zipped(files: Mapping[str, bytes], info: str, about: str, tag: str) -> bytes:
    wheel = f"Wheel-Version: 1.0\nGenerator: opweld {__version__}\n"
    wheel += f"Root-Is-Purelib: false\nTag: py3-none-{tag}\n"
    every = {**files, f"{info}/METADATA": about.encode(), f"{info}/WHEEL": wheel.encode()}
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in every.items())
    every[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in every.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return found.getvalue()


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return f"sha256={digest.rstrip('=')}"
