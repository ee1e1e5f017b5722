"""When the host keeps the form of a weight, tells of a change, and leaves it alone.

A stand-in for the kernels keeps b as it is, and makes it anew only where it is told to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.emulation.operators import load_operators
from tests.unit.plan.plans import BATCH, Make, graph
from tests.unit.plan.test_choice import EAGER

from opweld.ir.kernels.shared import sharing
from opweld.ir.original import Part
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.host.texts import host

STAND_IN = """
#include <cstdint>
#include <cstring>
static int64_t made = 0, unheld = 0;
extern "C" int64_t num_made() { return made; }
extern "C" int64_t num_unheld() { return unheld; }
struct Operand {
  const void* data;
  int64_t batch, row, inner;
};
struct Product {
  Operand a, b;
  int64_t batches, m, n, k;
};
static const Product& of(const void* product) { return *static_cast<const Product*>(product); }
extern "C" int64_t k1_mm_held(const void* product) {
  return of(product).m <= 2 ? 0 : 16 + of(product).n * of(product).k * 4;
}
extern "C" int64_t k1_mm_workspace(const void* product, int held) {
  return held ? 0 : of(product).n * of(product).k * 4;
}
extern "C" int k1_mm_contract(const void* product, void* result, int64_t, int64_t, int,
                              void* workspace, void* held, int changed, void*) {
  const auto& [a, b, batches, m, n, k] = of(product);
  int64_t* head = static_cast<int64_t*>(held);
  float* form = static_cast<float*>(held ? static_cast<void*>(head + 2) : workspace);
  if (!held) ++unheld;
  if (!held || changed || !head[0]) {
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i)
        form[j * k + i] = static_cast<const float*>(b.data)[j * b.row + i * b.inner];
    if (held) head[0] = 1, ++made;
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t at = 0; at < k; ++at)
        sum += static_cast<const float*>(a.data)[i * a.row + at * a.inner] * form[j * k + at];
      static_cast<float*>(result)[i * n + j] = sum;
    }
  return 0;
}
"""

TERMS, COLUMNS = 40, 24  # a product whose weight is kept


@dataclass
class Product:
    """`call(x, w)` is x @ w; counts are those since it was made."""

    call: Callable[..., torch.Tensor]
    library: ctypes.CDLL
    before: dict[str, int]

    def count(self, name: str) -> int:
        function = getattr(self.library, f"num_{name}")
        function.restype = ctypes.c_int64
        return function() - self.before.get(name, 0)

    def set(self, name: str, value: int) -> None:
        getattr(self.library, f"set_{name}")(ctypes.c_int64(value))


def operator(number: int, sites: int = 1) -> tuple[Any, ctypes.CDLL]:
    """A library of its own for every test: what is held lasts as long as the process. A forward
    calls the operator at so many sites.
    """
    m = Make()
    x, weights = m.x("x", BATCH, TERMS), [m.w(f"w{site}", TERMS, COLUMNS) for site in range(sites)]
    plan = make_plan(
        graph(*(m.product("mm", x, w, shape=(BATCH, COLUMNS)) for w in weights)), EAGER
    )
    part = Part(None, plan, lower(plan))  # type: ignore[arg-type]
    main = host(sharing((part,)), "cuda").text
    ops, library = load_operators(STAND_IN, main, instance=number)
    return ops.k1_mm, library


_numbers = iter(range(10**6))


@pytest.fixture
def product() -> Iterator[Product]:
    call, library = operator(next(_numbers))
    found = Product(call, library, {})
    found.before = {name: found.count(name) for name in ("made", "unheld", "waits")}
    yield found
    found.set("capturing", 0)
    found.set("stream", 0)


def check(product: Product, x: torch.Tensor, w: torch.Tensor) -> None:
    torch.testing.assert_close(product.call(x, w), x @ w)


def test_a_weight_is_made_ready_once(product: Product) -> None:
    w = torch.randn(TERMS, COLUMNS)
    for rows in (3, 5, 3):
        check(product, torch.randn(rows, TERMS), w)
    assert (product.count("made"), product.count("unheld")) == (1, 0)


def test_a_counted_change_is_told(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.nn.Parameter(torch.randn(TERMS, COLUMNS))
    with torch.no_grad():
        check(product, x, w)
        w.mul_(2.0)
        check(product, x, w)
        w.copy_(torch.randn(TERMS, COLUMNS))
        check(product, x, w)
        check(product, x, w)
    assert product.count("made") == 3


def test_weights_in_inference_mode(product: Product) -> None:
    with torch.inference_mode():
        x, w = torch.randn(3, TERMS), torch.randn(TERMS, COLUMNS)
        check(product, x, w)
        check(product, x, w)
    assert product.count("made") == 1


def test_what_nothing_is_kept_of(product: Product) -> None:
    w = torch.randn(TERMS, COLUMNS)
    check(product, torch.randn(2, TERMS), w)  # too few rows for the form
    assert (product.count("made"), product.count("unheld")) == (0, 1)


def test_layouts_are_kept_apart(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.randn(TERMS + 2, TERMS + 2)
    for view in (
        w[:TERMS, :COLUMNS],
        w.t()[:TERMS, :COLUMNS],
        w[1:-1, :COLUMNS],
        w[:TERMS, :COLUMNS],
    ):
        check(product, x, view)
    assert product.count("made") == 3


def test_the_oldest_is_dropped(product: Product) -> None:
    x, weights = torch.randn(3, TERMS), [torch.randn(TERMS, COLUMNS) for _ in range(5)]
    for w in weights:
        check(product, x, w)
    assert product.count("made") == 5
    for w in weights[1:]:
        check(product, x, w)
    assert product.count("made") == 5
    check(product, x, weights[0])
    assert product.count("made") == 6


def test_every_site_has_its_weights() -> None:
    call, library = operator(next(_numbers), sites=2)
    product = Product(call, library, {})
    product.before = {"made": product.count("made")}
    x, weights = torch.randn(3, TERMS), [torch.randn(TERMS, COLUMNS) for _ in range(9)]
    for w in (*weights[:8], *weights[:8]):
        check(product, x, w)
    assert product.count("made") == 8
    for w in (weights[8], weights[0]):
        check(product, x, w)
    assert product.count("made") == 10


def test_while_a_graph_is_captured_nothing_new_is_kept(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.randn(TERMS, COLUMNS)
    product.set("capturing", 1)
    check(product, x, w)
    assert (product.count("made"), product.count("unheld")) == (0, 1)


def test_what_a_graph_holds_is_never_dropped(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.randn(TERMS, COLUMNS)
    check(product, x, w)
    product.set("capturing", 1)
    check(product, x, w)
    product.set("capturing", 0)
    others = [torch.randn(TERMS, COLUMNS) for _ in range(6)]
    for other in others:
        check(product, x, other)
    made = product.count("made")
    check(product, x, w)
    assert product.count("made") == made == 7


def test_a_change_seen_by_a_capture_is_told_to_the_next_call(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.randn(TERMS, COLUMNS)
    check(product, x, w)
    w.mul_(2.0)
    product.set("capturing", 1)
    product.call(x, w)
    product.set("capturing", 0)
    made = product.count("made")
    check(product, x, w)
    assert product.count("made") == made + 1


def test_another_stream_waits_for_the_first(product: Product) -> None:
    x, w = torch.randn(3, TERMS), torch.randn(TERMS, COLUMNS)
    for stream, waits in ((0, 0), (1, 1), (1, 1), (0, 2)):
        product.set("stream", stream)
        check(product, x, w)
        assert product.count("waits") == waits
