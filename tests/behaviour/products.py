"""Models of matrix products, and their emitted CUDA files run on the CPU under emulation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.behaviour.emitted import Pair, load_file
from tests.emulation.operators import emulated_kernels, load_operators

from opweld import target
from opweld.driver import compile_file
from opweld.ir.kernels.product import Mode
from opweld.options import Options
from opweld.target import SM_90A, ProductRates

HEAD = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 10)
        self.odd = nn.Linear(12, 7, bias=False)
        self.weight = nn.Parameter(torch.randn(12, 10))
        self.stack = nn.Parameter(torch.randn(3, 12, 4))
        self.vector = nn.Parameter(torch.randn(12))

    def forward(self, x, y, z):
{body}


def get_inputs():
    return [torch.randn(4, 12), torch.randn(4, 5, 12), torch.randn(4, 7, 12)]


def get_init_inputs():
    return []
"""
# Each line of a body becomes one kernel, but for what an addmm ignores: that is one besides.
BODIES = {
    "tails": """
        h = self.fc(x)
        first = torch.relu(h) * self.weight[0] + x[:, 1:11]
        second = torch.tanh(self.odd(y)) + y[:, :, :7] * z[:, 0, :1].unsqueeze(1)
        third = self.odd(x) * 2.0
        return h, first, second, third
""",
    "layouts": """
        rows = torch.sigmoid(y @ self.weight)
        turned = F.linear(y.permute(1, 0, 2), self.odd.weight)
        back = (self.fc(x) @ self.weight.t()) + x
        swapped = torch.einsum("bik,kn->bni", y, self.weight)
        dotted = torch.tensordot(y, self.weight, dims=([2], [0])) - 1.0
        return rows, turned, back, swapped, dotted
""",
    "batches": """
        scores = torch.bmm(y, z.transpose(1, 2)) * 0.5
        added = torch.baddbmm(scores, y, z.transpose(1, 2), beta=0.5, alpha=2)
        shared = y.unsqueeze(1) @ self.stack
        wide = torch.matmul(self.stack.transpose(1, 2), y.mT.unsqueeze(1)).sigmoid()
        return scores, added, shared, wide
""",
    "vectors": """
        column = torch.mv(x, self.vector).relu()
        row = self.vector @ self.weight
        inner = torch.inner(y, self.vector) + 1.0
        ignored = torch.addmm(x[:, :10] * float("nan"), x, self.weight, beta=0)
        one = x[:, :1] @ self.weight[:1]
        none = x[:, :0] @ self.weight[:0] + 3.0
        return column, row, inner, ignored, one, none
""",
}
NUM_PRODUCTS = {"tails": 3, "layouts": 6, "batches": 4, "vectors": 7}


@contextmanager
def every_product_is_ours(tensor_cores: str = "none") -> Iterator[None]:
    """As if the library took an hour for each, with these kernels on the tensor cores."""
    rates = {mode: ProductRates(ours=1e15, library=1.0) for mode in Mode}
    modes = frozenset((Mode.FAITHFUL, Mode.TF32))
    emulated = replace(SM_90A, tensor_cores=tensor_cores, products=modes, product_rates=rates)
    target.TARGETS["sm_90a"] = emulated
    try:
        yield
    finally:
        target.TARGETS["sm_90a"] = SM_90A


def product_text(name: str, **options: Any) -> str:
    """What the compiler makes of a model: a CUDA file that nothing was run of."""
    return text_of(name, source_of(name), **options)


def text_of(name: str, source: str, tensor_cores: str = "none", **options: Any) -> str:
    """The same of any source."""
    with tempfile.TemporaryDirectory() as folder, every_product_is_ours(tensor_cores):
        path = Path(folder, f"{name}.py")
        path.write_text(source, "utf-8")
        torch.manual_seed(0)
        return compile_file(path, Options(target="sm_90a", check=False, **options)).text


def source_of(name: str) -> str:
    return HEAD.format(body=BODIES[name].strip("\n"))


def product_pair(name: str, folder: Path) -> Pair:
    """The original and its emitted file, whose kernels run under emulation."""
    return pair_of_texts(name, source_of(name), product_text(name), NUM_PRODUCTS[name], folder)


def pair_of_texts(name: str, source: str, text: str, num_kernels: int, folder: Path) -> Pair:
    """The same of any source and its emitted text."""
    built = "found = [*each(lambda its: library(*its), libraries if devices else ())]"
    lines = {
        built: "devices, found = _emulated(libraries)",
        "import torch\n": f"import torch\nfrom {__name__} import emulated as _emulated\n",
    }
    for line, changed in lines.items():
        assert line in text
        text = text.replace(line, changed, 1)
    original = load_file(folder / f"products_{name}.py", source)
    emitted = load_file(folder / f"products_{name}_new.py", text)
    return Pair(name, source, text, num_kernels, original, emitted)


def emulated(libraries: list[tuple[str, dict[str, list[str]]]]) -> tuple[list[Any], list[Any]]:
    """Stands for the build in an emitted file: the devices, and the operators of each library."""
    found = []
    for _, sources in libraries:
        cuda, main = ("\n".join(sources[f"{kind}_sources"]) for kind in ("cuda", "cpp"))
        found.append(load_operators(emulated_kernels(cuda), main)[0])
    return [torch.device("cpu")], found
