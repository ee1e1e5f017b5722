"""Complex tensors: what is taken apart, what the library is given, and the gradients of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.capturing import assert_row, exported, graph_of, module_of, ops_of
from tests.spelled import gradients, run_spelled
from torch import nn

from opweld.errors import OriginalKept

Function = Callable[[torch.Tensor, torch.Tensor], Any]


def drawn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


PAIRS = drawn(3, 4, 5, 2)
C = drawn(4, 5, seed=2, dtype=torch.complex64)


def pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x)


def seen(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x)


WELDED: dict[str, Function] = {
    "rotation": lambda x, c: seen(pairs(x) * c),
    "rotation of halves": lambda x, c: seen(pairs(x.double().float()) * c).flatten(2).half(),
    "sum": lambda x, c: seen(pairs(x) + c),
    "scaled sum": lambda x, c: seen(torch.add(pairs(x), c, alpha=0.5)),
    "sum scaled by a complex number": lambda x, c: seen(torch.add(pairs(x), c, alpha=2 - 1j)),
    "difference": lambda x, c: seen(1.5 - pairs(x)) + seen(pairs(x) - x[..., 0]),
    "a complex number": lambda x, c: seen(pairs(x) * 1j + (2 - 1j)),
    "product with real numbers": lambda x, c: seen(pairs(x) * x[..., 1] * 3),
    "quotient": lambda x, c: seen(pairs(x) / 3 + c / x[..., 1]),
    "conjugate": lambda x, c: seen((pairs(x).conj() * c).resolve_conj()),
    "negative": lambda x, c: seen(-pairs(x)),
    "parts": lambda x, c: pairs(x).real * 2 + (pairs(x) * c).imag,
    "from parts": lambda x, c: seen(torch.complex(x[..., 0], x[..., 1].exp()) * c),
    "polar": lambda x, c: seen(torch.polar(torch.ones_like(x[..., 0]), x[..., 1]) * c),
    "views": lambda x, c: seen(pairs(x).transpose(0, 1)[1:, :, None] * c[1:, None, None].flip(3)),
    "parts of an axis": lambda x, c: seen(pairs(x).unbind(1)[1] * c.split(2)[0][0]),
    "side by side": lambda x, c: seen(torch.cat([pairs(x), c[None] * 2], 0)),
    "side by side with real numbers": lambda x, c: seen(torch.cat([pairs(x), x[..., 0]], 0) * 2),
    "on top": lambda x, c: seen(torch.stack([pairs(x), pairs(x) * c], 1)),
    "padded": lambda x, c: seen(nn.functional.pad(pairs(x), (1, 2)) * 2),
    "condensed": lambda x, c: seen((pairs(x) * c).sum(1) + (pairs(x) * c).mean((1, 2))[:, None]),
    "chosen": lambda x, c: seen(torch.where(x[..., 0] > 0, pairs(x), c)),
    "picked": lambda x, c: seen(pairs(x).index_select(1, torch.arange(3, -1, -1)) * 2),
    "copied": lambda x, c: seen(pairs(x).clone().contiguous() * c),
    "made complex": lambda x, c: seen(x.to(torch.complex64) * 1j),
    "of another type": lambda x, c: seen(pairs(x).to(torch.complex128) * c),
    "written into": lambda x, c: seen(_written(pairs(x), c)),
}


def _written(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(3, 6, 5, dtype=torch.complex64)
    made[:, 1:5] = x * c
    return made


def module_for(function: Function) -> Any:
    return module_of(lambda self, x: function(x, self.c), c=nn.Parameter(C.clone()))


def both(function: Function, x: torch.Tensor) -> tuple[Any, Any, list[Any], list[Any], Any]:
    """Result and gradients, by the graph's text and in eager, and the graph."""
    module, given = module_for(function), x.clone().requires_grad_()
    wanted = [given, *module.parameters()]
    graph = exported(module, given).graph
    text = run_spelled(graph, module, given)
    expected = module(given)
    return text[0], expected, gradients(text, wanted), gradients([expected], wanted), graph


@pytest.mark.parametrize("name", WELDED)
def test_graph_and_text(name: str) -> None:
    ours, eager, found, wanted, _ = both(WELDED[name], PAIRS)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(found, wanted)
    graph = assert_row(module_for(WELDED[name]), PAIRS)
    calls = [op for op in ops_of(graph) if op.startswith("aten.")]
    assert set(calls) <= {"aten.view_as_real.default"}, "only the weight is read as it is"


LIBRARY: dict[str, tuple[Function, str]] = {
    "length": (lambda x, c: (pairs(x) * c).abs(), "aten.abs.default"),
    "angle": (lambda x, c: pairs(x).angle() + 1, "aten.angle.default"),
    "power": (lambda x, c: seen(torch.exp(c) * pairs(x)), "aten.exp.default"),
    "quotient": (lambda x, c: seen(pairs(x) / c), "aten.div.Tensor"),
    "product": (lambda x, c: seen((pairs(x) @ c.T) * 2), "aten.matmul.default"),
    "polar": (lambda x, c: seen(torch.polar(x[..., 0], x[..., 1])), "aten.polar.default"),
    "spectrum": (
        lambda x, c: torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, dim=1),
        "aten.fft_rfft.default",
    ),
    "a sum of products": (
        lambda x, c: seen(torch.einsum("bij,ij->bi", pairs(x), c)),
        "aten.einsum.default",
    ),
    "half a spectrum, conjugated when it is read": (
        lambda x, c: seen(torch.fft.ihfft(x, dim=1).resolve_conj()) * 2,
        "aten.fft_ihfft.default",
    ),
    "padding by a number": (
        lambda x, c: seen(nn.functional.pad(pairs(x), (1, 2), value=1.5)),
        "aten.pad.default",
    ),
    "singular vectors": (
        lambda x, c: seen(torch.linalg.svd(c, False)[2].mH.resolve_conj()).square().sum(-1),
        "aten.linalg_svd.default",
    ),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_is_given_whole_tensors(name: str) -> None:
    function, target = LIBRARY[name]
    ours, eager, found, wanted, graph = both(function, PAIRS)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(found, wanted)
    assert [op for op in ops_of(graph) if op.startswith(target)]


def test_a_spectrum_goes_from_call_to_call_without_a_copy() -> None:
    def filtered(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.fft.ifft(torch.fft.fft(x, dim=1).transpose(1, 2)[:, :, 1:].conj(), dim=2).real

    graph = assert_row(module_for(filtered), PAIRS)
    assert not {"aten.view_as_complex.default", "cat"} & set(ops_of(graph))


def test_results_and_operands_are_complex() -> None:
    module = module_of(lambda self, x: (x * self.c, x.real, self.c), c=C)
    x = drawn(3, 4, 5, dtype=torch.complex64)
    text = run_spelled(exported(module, x).graph, module, x)
    torch.testing.assert_close(text, list(module(x)))
    assert text[1]._base is not None and text[1].data_ptr() == x.data_ptr(), "a view, as in eager"


def test_infinities_spread_as_in_eager() -> None:
    x = PAIRS.clone()
    x[0, 0, 0, 0], x[1, 1, 1, 1], x[2, 2, 2, 1] = float("inf"), float("nan"), float("inf")
    functions = [WELDED[name] for name in ("rotation", "quotient", "product with real numbers")]
    for function in (*functions, lambda x, c: seen(pairs(x) / 3)):
        ours, eager, *_ = both(function, x)
        torch.testing.assert_close(ours, eager, equal_nan=True)


def test_a_table_of_complex_numbers() -> None:
    table = lambda self, x: seen(pairs(x) * torch.tensor([1j, 2, 3 - 1j, 4, float("nan")]))  # noqa: E731
    graph = assert_row(module_of(table), PAIRS)
    assert "torch.tensor" in ops_of(graph)


def test_elements_that_no_operation_knows_stay_with_the_library() -> None:
    module = module_of(lambda self, x: x.sum().to(torch.float8_e4m3fn).float() * 2)
    ops = ops_of(graph_of(module, PAIRS))
    assert ops[-1] == "mul" and ops[-2].startswith("aten."), "the eight bits are converted there"


def test_numbers_are_drawn_for_elements_that_lie_as_in_eager() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return seen(nn.functional.dropout(x, 0.5, True))

    for function in (lambda self, x: dropped(pairs(x)), lambda self, x: dropped(pairs(x) * 2)):
        assert "aten.dropout.default" in ops_of(graph_of(module_of(function), PAIRS))
    for function in (
        lambda self, x: dropped((pairs(x) * 2).mT),
        lambda self, x: dropped(pairs(x).mT * 2),
    ):
        with pytest.raises(OriginalKept, match="lie otherwise in memory"):
            graph_of(module_of(function), PAIRS)
    read = lambda self, x: dropped(torch.fft.fft(x[..., 0]).mT)  # noqa: E731
    assert "aten.dropout.default" in ops_of(graph_of(module_of(read), PAIRS))
