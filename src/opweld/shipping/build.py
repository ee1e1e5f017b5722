"""Builds the libraries of an emitted file for other machines, in a folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from opweld.emission.package import LibraryTexts
from opweld.errors import BuildFailed, MissingCompiler
from opweld.shipping.architectures import Architectures
from opweld.shipping.emitted import Emitted

# PyTorch's headers are of C++20 from 2.13 on.
_STANDARD = "-std=c++20"
# As torch.utils.cpp_extension gives nvcc.
_NVCC_FLAGS = (
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
    *("--expt-relaxed-constexpr", "-O3", "-std=c++17", "-Xcompiler=-fPIC,-fvisibility=hidden"),
)
# Nothing of the place or the hour is left in a library: the same texts give the same bytes.
_LINKED_ALIKE = ("-Wl,-Bsymbolic", "-Wl,-s", "-Wl,--build-id=none")
_VERSION = re.compile(r"\bGLIBC_(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Built:
    """Of each library, by its first operator, its namespace and its file; and what they need."""

    files: dict[str, tuple[str, Path]]
    glibc: str
    cuda: str | None


@dataclass(frozen=True, slots=True)
class Nvcc:
    """The compiler, the major number of its CUDA, and the folder of its headers."""

    path: Path
    major: str
    include: Path


def build(emitted: Emitted, slug: str, archs: Architectures, folder: Path) -> Built:
    """Builds all libraries in `folder`, side by side.

    Raises:
        MissingCompiler: g++, or for CUDA nvcc, is not there.
        BuildFailed: a compiler refused the source.
    """
    nvcc = _nvcc() if archs.on_cuda else None
    compiler = os.environ.get("CXX", "c++")
    if not shutil.which(compiler):
        raise MissingCompiler(f"there is no C++ compiler ({compiler})", next_step="install g++")

    def one(library: LibraryTexts) -> tuple[str, tuple[str, Path]]:
        name = _namespace(emitted, library, slug, archs)
        place = folder / name
        place.mkdir()
        return library.first, (name, _library(emitted, library, name, archs, place, nvcc))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        files = dict(pool.map(one, emitted.libraries))
    glibc = max((_needed_glibc(file) for _, file in files.values()), default=(2, 17))
    return Built(files, "{}.{}".format(*glibc), nvcc.major if nvcc else None)


def _namespace(emitted: Emitted, library: LibraryTexts, slug: str, archs: Architectures) -> str:
    """A name that the texts alone decide, whatever machine builds them."""
    known = repr((library.host, library.cuda, emitted.flags, archs.names))
    return f"opweld_{slug}_{hashlib.sha256(known.encode()).hexdigest()[:12]}"


def _library(
    emitted: Emitted,
    library: LibraryTexts,
    name: str,
    archs: Architectures,
    place: Path,
    nvcc: Nvcc | None,
) -> Path:
    torch = _torch()
    host, out = place / "host.cpp", place / f"{name}.so"
    host.write_text(library.host, "utf-8")
    level = archs.names[0]
    flags = [f.replace("-march=native", f"-march={level}") for f in emitted.flags]
    includes = [f"-I{torch / 'include'}"]
    linked = ["-ltorch", "-ltorch_cpu", "-lc10"]
    objects: list[str] = []
    folders = [torch / "lib"]
    if nvcc:
        kernels = place / "kernels.cu"
        kernels.write_text(library.cuda, "utf-8")
        objects.append("kernels.o")
        flags_of_kernels = [*_NVCC_FLAGS, *archs.gencode]
        _run([str(nvcc.path), "-c", kernels.name, "-o", *objects, *flags_of_kernels], place=place)
        includes.append(f"-I{nvcc.include}")
        folders.append(_stubs(place, nvcc.major))
        linked += ["-ltorch_cuda", "-lcudart"]
    elif platform.machine() == "x86_64":
        linked.append("-lmvec")
    _run(
        [
            *(os.environ.get("CXX", "c++"), "-shared", "-fPIC", _STANDARD, *flags),
            f"-DTORCH_EXTENSION_NAME={name}",
            *(*includes, host.name, *objects, "-o", out.name, *_LINKED_ALIKE),
            *(*(f"-L{each}" for each in folders), "-Wl,--no-as-needed", *linked),
        ],
        place=place,
    )
    return out


def _stubs(place: Path, cuda: str) -> Path:
    """A folder with libraries of the names that PyTorch's for CUDA and CUDA's runtime have.

    What is linked against names them as those that it needs; PyTorch has loaded them then. A
    machine that builds need not have them.
    """
    source, folder = place / "stub.cpp", place / "stubs"
    source.write_text("", "utf-8")
    folder.mkdir()
    compiler = os.environ.get("CXX", "c++")
    for name, soname in (("torch_cuda", "libtorch_cuda.so"), ("cudart", f"libcudart.so.{cuda}")):
        out = folder / f"lib{name}.so"
        _run([compiler, "-shared", f"-Wl,-soname,{soname}", str(source), "-o", str(out)])
    return folder


def _torch() -> Path:
    """The folder of the installed PyTorch, which need not be imported."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _nvcc() -> Nvcc:
    """The compiler of the CUDA toolkit.

    Raises:
        MissingCompiler: there is none.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    searched = os.pathsep.join(filter(None, (home and f"{home}/bin", os.environ.get("PATH"))))
    found = shutil.which("nvcc", path=f"{searched}{os.pathsep}/usr/local/cuda/bin")
    if found is None:
        raise MissingCompiler(
            "there is no nvcc", next_step="install the CUDA toolkit or set CUDA_HOME"
        )
    release = re.search(r"release (\d+)", _run([found, "--version"]))
    # Where its own headers are; a wrapper or a link of it may be elsewhere.
    dryrun = _run([found, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull], both=True)
    include = re.search(r'INCLUDES="-I([^"]+)"', dryrun)
    if release is None or include is None:
        raise MissingCompiler(f"{found} does not say what it is", next_step="set CUDA_HOME")
    return Nvcc(Path(found), release[1], Path(include[1]).resolve())


def _needed_glibc(library: Path) -> tuple[int, int]:
    """The newest version of glibc's symbols that a library names."""
    names = library.read_bytes().decode("latin-1")
    return max((int(a), int(b)) for a, b in [*_VERSION.findall(names), ("2", "2")])


def _run(command: Sequence[str], both: bool = False, place: Path | None = None) -> str:
    """What a compiler says on its standard output, or on `both`; an error where it refuses."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=place)
    if done.returncode == 0:
        return done.stdout + (done.stderr if both else "")
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line), (lines or ["it said nothing"])[-1])
    raise BuildFailed(
        f"{Path(command[0]).name} refused a library: {said.strip()[:300]}",
        next_step="see what is missing with `opweld doctor`",
    )


def platform_tag() -> str:
    """What a wheel with such libraries is for: linux_x86_64."""
    return re.sub(r"[-.]", "_", sysconfig.get_platform())
