"""Kernels of many emitted files in one library: most of a build is reading headers.

Each file is imported once with PyTorch's builder replaced by one that notes what it was asked for;
then everything asked for is compiled as one text, each file's part in a namespace of its own, under
the file's own flags. The library is left where each file looks for the one it built before, so that
importing it, in whatever process, finds its kernels there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from unittest import mock

from torch.utils import cpp_extension

from opweld.device import names, pieces
from opweld.model_file import import_file

_FIRST_KERNEL = re.compile(r"^// k\d+_", re.MULTILINE)
_FIRST_OPERATOR = re.compile(r'^(extern "C" int k\d+_|namespace \{$)', re.MULTILINE)
_ENTRY = re.compile(r'^extern "C" \w+ (k\d+_\w+)\(', re.MULTILINE)


class Noted(Exception):
    """Ends a build that shall only be noted."""


@dataclass(frozen=True)
class Order:
    """What one emitted file asked PyTorch's builder for."""

    name: str
    folder: Path
    inputs: Mapping[str, Any]

    @property
    def is_cuda(self) -> bool:
        return "cuda_sources" in self.inputs


def noted_orders(files: Iterable[Path]) -> list[Order]:
    """The builds that importing these emitted files asks for; none for what is there already."""
    orders: list[Order] = []

    def note(name: str, build_directory: str, **inputs: Any) -> None:
        orders.append(Order(name, Path(build_directory).parent / name, inputs))
        raise Noted

    with mock.patch.object(cpp_extension, "load_inline", note), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in files:
            import_file(file, f"noted_{file.stem}")
    return orders


def build_together(orders: list[Order], folder: Path) -> None:
    """One library for all; raises RuntimeError with the compiler's words."""
    if not orders:
        return
    folder.mkdir(parents=True, exist_ok=True)
    name = f"together_{folder.name}"
    path = cpp_extension.load_inline(name=name, build_directory=str(folder), **together(orders))
    for order in orders:
        _leave(Path(path), order)


def together(orders: list[Order]) -> dict[str, Any]:
    """What to ask PyTorch's builder for: the libraries once, then each file's own text."""
    first = orders[0]
    apart = [_apart(order, number) for number, order in enumerate(orders)]
    language = "cuda" if first.is_cuda else "cpp"
    kernels = [*pieces(_library(orders, language), language), *(kernel for kernel, _ in apart)]
    hosts = [_host_library(orders), *(host for _, host in apart)]
    flags = [f for f in first.inputs["extra_cflags"] if not f.startswith("-DTORCH_EXTENSION_NAME")]
    inputs = {**first.inputs, "extra_cflags": flags}
    if first.is_cuda:
        sources = {"cuda_sources": ["\n".join(kernels)], "cpp_sources": ["\n".join(hosts)]}
    else:
        sources = {"cpp_sources": ["\n".join([*kernels, *hosts])]}
    return {**inputs, **sources}


# What registers an operator.
_MACRO = re.compile(r"#define OPWELD_OPERATOR\((?:[^\n]*\\\n)*[^\n]*")
# In their order.
_HOST_TEXTS = (
    *(
        "tensor_view.h",
        "scratch.h",
        "tensor_list.h",
        "sizes.h",
        "host.h",
        "host_cuda.h",
        "host_cpu.h",
        "memory.h",
        "product.h",
        "packed_weights.h",
    ),
    *("rows_cpu.h", "inside_cpu.h", "row_blocks.h"),
)

# The families of tensor cores' kernels define the same; a kernel of each tells which a text has.
_FAMILIES = {"sm90": "contract_sm90_kernel", "mma": "mma_product_kernel", "none": ""}
_OF_FAMILY = ("tensor_cores", "live", "split_tiles", "whole_tiles")


def _library(orders: list[Order], language: str) -> list[str]:
    """All pieces of the device library, of the families the one that the files were made for."""
    texts = [text for order in orders for text in order.inputs.get("cuda_sources", ())]
    used = (name for name, kernel in _FAMILIES.items() if any(kernel in t for t in texts))
    family = next(used, None)
    others = {f"{what}_{name}" for what in _OF_FAMILY for name in _FAMILIES if name != family}
    return [name for name in names(language) if name not in others]


def _apart(order: Order, number: int) -> tuple[str, str]:
    """The kernels and the operators of one file, with names that no other file has."""
    kernel, host = _texts(order)
    kernel = kernel[_start(_FIRST_KERNEL, kernel) :]
    host = host[_start(_FIRST_OPERATOR, host) :]
    for entry in _ENTRY.findall(kernel):
        alone = re.compile(rf"\b{entry}\b")
        kernel, host = (alone.sub(f"{entry}_of_{number}", text) for text in (kernel, host))
    space = f"namespace file_{number} {{"
    registered = f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {order.name}"
    return f"{space}\n{kernel}\n}}", f"{registered}\n{space}\n{host}\n}}"


def _texts(order: Order) -> tuple[str, str]:
    sources = order.inputs["cpp_sources"]
    if order.is_cuda:
        return "\n".join(order.inputs["cuda_sources"]), "\n".join(sources)
    half = len(sources) // 2  # each has its own text behind what all files share
    return "\n".join(sources[:half]), "\n".join(sources[half:])


def _host_library(orders: list[Order]) -> str:
    """What stands before the operators: each text that some file has, once."""
    heads = [host[: _start(_FIRST_OPERATOR, host)] for _, host in map(_texts, orders)]
    host = resources.files("opweld.device") / "host"
    texts = ((host / name).read_text("utf-8") for name in _HOST_TEXTS)
    # A file has those declarations of a text that it uses: here stand whole texts, for all files.
    used = [t for t in texts if any(_declares(t, head) for head in heads)]
    macro = next(found[0] for head in heads if (found := _MACRO.search(head)))
    return "\n".join([*used, macro])


def _start(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    assert found is not None, "the emitted text has another form than it had"
    return found.start()


def _leave(library: Path, order: Order) -> None:
    """Where the emitted file looks, in the form in which it leaves a library itself."""
    order.folder.mkdir(parents=True, exist_ok=True)
    place = order.folder / f"{library.stat().st_size}.so"
    place.unlink(missing_ok=True)
    place.symlink_to(library.resolve())


def _declares(text: str, head: str) -> bool:
    """Whether a head has a declaration of a text."""
    lines = {line for line in text.splitlines() if len(line) > 24 and line[0] not in " #/}"}
    own = {line for line in lines if not line.startswith(("template", "using"))}
    return not own.isdisjoint(head.splitlines())
