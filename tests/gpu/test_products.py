"""Fused matrix products on the device: errors beside eager's, weights that change, CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.gpu.emitting import all_products_ours, cuda_of, emitted_module
from torch import Tensor

pytestmark = pytest.mark.gpu

ROWS, INNER, COLUMNS = 512, 1536, 2048
RUNS = 200
LINEAR = f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({INNER}, {COLUMNS})

    def forward(self, x, residual):
        return torch.tanh(self.fc(x)) + residual

def get_inputs():
    return [torch.randn({ROWS}, {INNER}), torch.randn({ROWS}, {COLUMNS})]

def get_init_inputs():
    return []
"""
MATMUL = f"""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y.mT)

def get_inputs():
    return [torch.randn({ROWS}, {INNER}), torch.randn({COLUMNS}, {INNER})]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", autouse=True)
def kernels_of_ours() -> Iterator[None]:
    """Whatever the plan expects of them: some of these products are faster as the library's."""
    with all_products_ours():
        yield


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(emitted_module(tmp_path_factory.mktemp("linear"), "linear", LINEAR))


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(emitted_module(tmp_path_factory.mktemp("matmul"), "matmul", MATMUL))


@pytest.fixture
def tf32() -> Iterator[None]:
    """While torch's flag allows TF32."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """What was compiled while TF32 was allowed."""
    folder = tmp_path_factory.mktemp("loose")
    torch.set_float32_matmul_precision("high")
    try:
        found = {"linear": LINEAR, "matmul": MATMUL}
        modules = {name: built(emitted_module(folder, name, found[name])) for name in found}
    finally:
        torch.set_float32_matmul_precision("highest")
    assert all("op::Tf32" in cuda_of(module) for module in modules.values())
    return modules


# Rows, inner and columns: packets of four columns, of two, of one; few intervals of k and many.
SIZES = [(ROWS, INNER, COLUMNS), (1000, 72, 1002), (700, 333, 1001), (2048, 64, 4096)]


@pytest.fixture(scope="module", params=SIZES, ids=str)
def across(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """x y, of a y that lies across k."""
    rows, inner, columns = request.param
    text = MATMUL.replace("y.mT", "y").replace(f"{ROWS}, {INNER}", f"{rows}, {inner}")
    text = text.replace(f"{COLUMNS}, {INNER}", f"{inner}, {columns}")
    module = built(emitted_module(tmp_path_factory.mktemp("across"), "across", text))
    module.sizes = request.param
    return module


def built(module: ModuleType) -> ModuleType:
    assert module.ModelNew._opweld.devices, "the kernels were not built"
    assert "_contract(" in cuda_of(module), "the product is the library's"
    return module


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def errors(found: Tensor, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Of the whole product x y^T against float64: root mean square and largest."""
    off = (found.double() - x.double() @ y.double().mT).abs()
    return off.square().mean().sqrt().item(), off.max().item()


def half_ulp(value: Tensor) -> float:
    exponents = torch.floor(torch.log2(value.abs().double().clamp_min(2.0**-126)))
    return torch.exp2(exponents - 24).square().mean().sqrt().item()


def require_as_exact(found: Tensor, eager: Tensor, x: Tensor, y: Tensor) -> None:
    """Grade A (judge/numerics/grade.py): rms within 5 %, largest 1.5 times, plus half an ulp."""
    rms, largest = errors(found, x, y)
    eager_rms, eager_largest = errors(eager, x, y)
    ulp = half_ulp(eager)
    assert rms <= 1.05 * eager_rms + ulp, (rms, eager_rms, ulp)
    assert largest <= 1.5 * eager_largest + 4 * ulp, (largest, eager_largest, ulp)


def log_uniform(*shape: int) -> Tensor:
    return torch.exp2((torch.rand(*shape, device="cuda") * 2 - 1) * 10) * normal(*shape).sign()


def with_huge(x: Tensor, value: float) -> Tensor:
    x[torch.arange(len(x)), torch.randint(0, x.shape[1], (len(x),))] = value
    return x


def halves(k: int) -> Tensor:
    x = normal(ROWS, k // 2)
    return torch.cat([x, -x], 1)


def huge_column(x: Tensor) -> Tensor:
    x[:, 3] = 2.0**26
    return x


def zero_column(y: Tensor, step: int) -> Tensor:
    y[::step, 3] = 0
    return y


def some(share: float, x: Tensor) -> Tensor:
    return torch.rand_like(x) < share


def outlier_columns(bits: int) -> tuple[Tensor, Tensor]:
    """An eighth of the columns of x huge, and zero in all rows of y but every fourth."""
    x, y = normal(ROWS, INNER).relu(), normal(COLUMNS, INNER)
    huge = torch.rand(INNER, device="cuda") < 0.125
    x[:, huge] = normal(ROWS, INNER)[:, huge].abs() * 2.0**bits
    y[torch.arange(COLUMNS, device="cuda") % 4 > 0] *= ~huge
    return x, y


def pruned(bits: int) -> tuple[Tensor, Tensor]:
    x, y = normal(ROWS, INNER).relu(), normal(COLUMNS, INNER)
    return torch.where(some(0.0005, x), x * 2.0**bits, x), y * some(0.1, y)


def outliers_in_weights(bits: int) -> tuple[Tensor, Tensor]:
    x, y = normal(ROWS, INNER), normal(COLUMNS, INNER)
    return x * some(0.05, x), torch.where(some(0.01, y), y * 2.0**bits, y)


def blocks(bits: int) -> tuple[Tensor, Tensor]:
    """Two blocks of a diagonal, the first huge, that part within 64 columns."""
    x, y, edge = normal(ROWS, INNER), normal(COLUMNS, INNER), INNER // 2 + 20
    x[:, :edge] *= 2.0**bits
    y[::2, edge:], y[1::2, :edge] = 0, 0
    return x, y


DROWNING = {
    f"{form.__name__} 2^{bits}": partial(form, bits)
    for form in (outlier_columns, pruned, outliers_in_weights, blocks)
    for bits in (22, 28, 60)
}
GRADE = torch.exp2(torch.linspace(-20, 20, INNER))
DISTRIBUTIONS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "uniform": lambda: (normal(ROWS, INNER).uniform_(), normal(COLUMNS, INNER).uniform_()),
    "normal": lambda: (normal(ROWS, INNER), normal(COLUMNS, INNER)),
    "weights": lambda: (normal(ROWS, INNER).relu(), normal(COLUMNS, INNER) / math.sqrt(INNER)),
    "log-uniform": lambda: (log_uniform(ROWS, INNER), log_uniform(COLUMNS, INNER)),
    "one huge element a row": lambda: (with_huge(normal(ROWS, INNER), 1e6), normal(COLUMNS, INNER)),
    "one huge element a row of both": lambda: (
        with_huge(normal(ROWS, INNER), 1e6),
        with_huge(normal(COLUMNS, INNER), 1e6),
    ),
    "cancellation": lambda: (halves(INNER), normal(COLUMNS, INNER)),
    "constant": lambda: (
        torch.full((ROWS, INNER), 1 / 3, device="cuda"),
        torch.full((COLUMNS, INNER), 1 / 7, device="cuda"),
    ),
    "graded": lambda: (normal(ROWS, INNER) * GRADE.cuda(), normal(COLUMNS, INNER) / GRADE.cuda()),
    "huge column, zero weights": lambda: (
        huge_column(normal(ROWS, INNER)),
        zero_column(normal(COLUMNS, INNER), 1),
    ),
    "huge column, some zero weights": lambda: (
        huge_column(normal(ROWS, INNER)),
        zero_column(normal(COLUMNS, INNER), 2),
    ),
    "tiny": lambda: (normal(ROWS, INNER) * 2.0**-100, normal(COLUMNS, INNER)),
    "subnormal": lambda: (normal(ROWS, INNER) * 2.0**-130, normal(COLUMNS, INNER)),
    "huge": lambda: (normal(ROWS, INNER) * 2.0**110, normal(COLUMNS, INNER) * 2.0**-100),
    **DROWNING,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_errors_are_no_larger_than_those_of_eager(matmul: ModuleType, name: str) -> None:
    torch.manual_seed(3)
    x, y = DISTRIBUTIONS[name]()
    require_as_exact(matmul.ModelNew()(x, y), x @ y.mT, x, y)


@pytest.mark.parametrize("name", DROWNING)
def test_small_results_beside_large_ones_are_as_exact_as_eagers(
    matmul: ModuleType, name: str
) -> None:
    torch.manual_seed(3)
    x, y = DROWNING[name]()
    found, eager = (relative_rms(c, x, y) for c in (matmul.ModelNew()(x, y), x @ y.mT))
    assert found <= 1.05 * eager + 2.0**-25


def rounded(x: Tensor) -> Tensor:
    """To the 11 bits of TF32, to nearest, in float64."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**11).round(), exponent - 11)


def relative_rms(found: Tensor, x: Tensor, y: Tensor) -> float:
    """Of the errors over |x| |y|^T, element by element."""
    exact, size = x.double() @ y.double().mT, x.double().abs() @ y.double().abs().mT
    return ((found.double() - exact) / size.clamp_min(1e-300)).square().mean().sqrt().item()


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_tf32_is_as_exact_as_operands_rounded_to_11_bits(
    loose: dict[str, ModuleType], name: str
) -> None:
    torch.manual_seed(3)
    x, y = DISTRIBUTIONS[name]()
    found = loose["matmul"].ModelNew()(x, y)
    marks = rounded(x) @ rounded(y).mT
    # Results below the normal numbers round to multiples of 2^-149.
    floor = 2.0**-149 / (x.double().abs() @ y.double().abs().mT).clamp_min(1e-300).min().item()
    limit = 1.02 * relative_rms(marks, x, y) + 2.0**-21 + floor
    assert relative_rms(found, x, y) <= limit
    require_as_exact(found, x @ y.mT, x, y)


@pytest.mark.parametrize("rows", [5, 128, 129, 512, 1000])
def test_tf32_of_any_number_of_rows(loose: dict[str, ModuleType], rows: int, tf32: None) -> None:
    new = loose["linear"].ModelNew().cuda()
    x, residual = normal(rows, INNER), normal(rows, COLUMNS)
    old = eager_of(loose["linear"], new).double()
    for _ in range(2):
        with torch.no_grad():
            found, exact = new(x, residual), old(x.double(), residual)
        # Weights of 1 / sqrt(INNER) at most: sums near 1, each operand off by 2^-11 of itself.
        off = (found.double() - exact).abs()
        assert off.max() < 5e-3 and 1e-7 < off.square().mean().sqrt() < 5e-4
        behind_autograd(new)
        old = eager_of(loose["linear"], new).double()


def test_tf32_is_used_only_while_the_flag_allows_it(loose: dict[str, ModuleType]) -> None:
    x, y = normal(ROWS, INNER), normal(COLUMNS, INNER)
    assert torch.equal(loose["matmul"].ModelNew()(x, y), x @ y.mT)


@pytest.mark.parametrize("turned", [False, True], ids=["across", "along"])
def test_any_layout_and_width_of_a_live_operand(across: ModuleType, turned: bool) -> None:
    torch.manual_seed(3)
    rows, inner, columns = across.sizes
    x, y = log_uniform(rows, inner), log_uniform(inner, columns)
    laid = y.mT.contiguous().mT if turned else y
    found, eager = across.ModelNew()(x, laid), x @ y
    require_as_exact(found, eager, x, y.mT)
    assert not found.isnan().any()


# Rows, inner and columns of short sums: packets of four columns, of two, of one; part of a warp.
SHORT = [(2048, 16, 4096), (1000, 32, 1002), (777, 5, 1001), (4099, 1, 60)]


@pytest.fixture(scope="module", params=SHORT, ids=str)
def short(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    rows, inner, columns = request.param
    text = MATMUL.replace(f"{ROWS}, {INNER}", f"{rows}, {inner}")
    text = text.replace(f"{COLUMNS}, {INNER}", f"{columns}, {inner}")
    module = built(emitted_module(tmp_path_factory.mktemp("short"), "short", text))
    module.sizes = request.param
    return module


@pytest.mark.parametrize("turned", [False, True], ids=["along", "across"])
def test_short_sums(short: ModuleType, turned: bool) -> None:
    torch.manual_seed(3)
    rows, inner, columns = short.sizes
    x, y = normal(rows, inner), normal(columns, inner)
    laid = [t.mT.contiguous().mT if turned else t for t in (x, y)]
    found = short.ModelNew()(*laid)
    require_as_exact(found, x @ y.mT, x, y)
    assert not found.isnan().any()


def test_short_sums_and_what_follows_them(tmp_path: Path) -> None:
    text = LINEAR.replace(f"{ROWS}, {INNER}", f"{ROWS}, 16").replace(f"({INNER}, ", "(16, ")
    module = built(emitted_module(tmp_path, "short_linear", text))
    new = module.ModelNew().cuda()
    x, residual = normal(ROWS, 16), normal(ROWS, COLUMNS)
    old = eager_of(module, new).double()
    with torch.no_grad():
        found, exact = new(x, residual), old(x.double(), residual)
    assert (found.double() - exact).abs().max() < 1e-6


def test_small_integers_are_exact(matmul: ModuleType) -> None:
    x, y = (torch.randint(-9, 10, (n, INNER), device="cuda").float() for n in (ROWS, COLUMNS))
    assert torch.equal(matmul.ModelNew()(x, y), x @ y.mT)


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, 3e38])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_comes_out_as_eagers(matmul: ModuleType, odd: float, side: int) -> None:
    operands = [normal(ROWS, INNER), normal(COLUMNS, INNER)]
    operands[side][5, 70] = odd
    found, eager = matmul.ModelNew()(*operands), operands[0] @ operands[1].mT
    assert torch.equal(found.isnan(), eager.isnan())
    assert torch.equal(found[eager.isinf()], eager[eager.isinf()])
    finite = eager.isfinite() & (eager.abs() < 1e30)
    torch.testing.assert_close(found[finite], eager[finite], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 16, 17, 127, 128, 129, 255, 256, 257, 512, 1000])
def test_any_number_of_rows(linear: ModuleType, rows: int) -> None:
    new = linear.ModelNew().cuda()
    x, residual = normal(rows, INNER), torch.full((rows, COLUMNS), math.nan, device="cuda")
    residual.normal_()
    with torch.no_grad():
        found, exact = new(x, residual), eager_of(linear, new).double()(x.double(), residual)
    assert (found.double() - exact).abs().max() < 1e-5


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 13, 16])
def test_few_rows_are_as_exact_as_eagers(linear: ModuleType, rows: int) -> None:
    torch.manual_seed(3)
    new = linear.ModelNew().cuda()
    old = eager_of(linear, new)
    x, residual = normal(rows, INNER), torch.zeros(rows, COLUMNS, device="cuda")
    with torch.no_grad():
        found, eager = new(x, residual), old(x, residual)
        exact = old.double()(x.double(), residual.double())
    mine, theirs = ((y.double() - exact).square().mean().sqrt().item() for y in (found, eager))
    assert mine <= 1.05 * theirs + half_ulp(eager)
    with torch.no_grad():
        assert torch.equal(new(x, residual), found)


def eager_of(module: ModuleType, new: torch.nn.Module) -> torch.nn.Module:
    old = module._Original().cuda()
    old.load_state_dict(new.state_dict())
    return old


def step(optimiser: type[torch.optim.Optimizer], **options: bool) -> Callable[..., None]:
    def change(model: torch.nn.Module) -> None:
        model.fc.weight.grad = torch.randn_like(model.fc.weight)
        optimiser([model.fc.weight], lr=0.1, **options).step()

    return change


def by_loading(model: torch.nn.Module) -> None:
    model.load_state_dict({k: torch.randn_like(v) * 0.1 for k, v in model.state_dict().items()})


def by_assignment(model: torch.nn.Module) -> None:
    model.fc.weight.data = torch.randn_like(model.fc.weight) * 0.1


def behind_autograd(model: torch.nn.Module) -> None:
    model.fc.weight.data.mul_(-1.5)


def one_element(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.fc.weight[17, 901] += 5.0


def by_moving(model: torch.nn.Module) -> None:
    model.cpu()
    by_assignment(model)
    model.cuda()


CHANGES = {
    "sgd": step(torch.optim.SGD, foreach=False),
    "foreach": step(torch.optim.SGD, foreach=True),
    "fused": step(torch.optim.AdamW, fused=True),
    "load_state_dict": by_loading,
    "data assigned": by_assignment,
    "data changed": behind_autograd,
    "one element": one_element,
    "moved": by_moving,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_weight_is_seen(linear: ModuleType, name: str) -> None:
    model = linear.ModelNew().cuda()
    x, residual = normal(ROWS, INNER), normal(ROWS, COLUMNS)
    for _ in range(2):
        require_eager(linear, model, x, residual)
        CHANGES[name](model)
        require_eager(linear, model, x, residual)


def require_eager(module: ModuleType, model: torch.nn.Module, x: Tensor, residual: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(
            model(x, residual), eager_of(module, model)(x, residual), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "seen by the device"])
def test_a_weight_that_changes_before_each_call(linear: ModuleType, counted: bool) -> None:
    """Blocks of the kernel that splits it again wait for each other: the same bits each time."""
    model = linear.ModelNew().cuda()
    weight = model.fc.weight if counted else model.fc.weight.data
    values = [normal(*weight.shape) for _ in range(2)]
    x, residual = normal(ROWS, INNER), normal(ROWS, COLUMNS)
    first: list[Tensor] = []
    with torch.no_grad():
        for turn in range(2 * RUNS):
            weight.copy_(values[turn % 2])
            found = model(x, residual)
            if turn < 2:
                require_eager(linear, model, x, residual)
                first.append(found)
            assert torch.equal(found, first[turn % 2])


def test_a_weight_changed_between_replays_of_a_graph(linear: ModuleType) -> None:
    model = linear.ModelNew().cuda()
    x, residual = normal(ROWS, INNER), normal(ROWS, COLUMNS)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(x, residual)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model(x, residual)
        for name in ("fused", "data changed", "sgd"):
            CHANGES[name](model)
            graph.replay()
            expected = eager_of(linear, model)(x, residual)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    require_eager(linear, model, x, residual)


def test_a_graph_captured_before_any_call(linear: ModuleType) -> None:
    model = linear.ModelNew().cuda()
    # As no other weight lies: one that was at this address may have left its form, which is found.
    model.fc.weight.data = model.fc.weight.data.t().contiguous().t()
    x, residual = normal(ROWS, INNER), normal(ROWS, COLUMNS)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        linear.ModelNew().cuda()(x, residual)  # kernels are loaded; this weight is another
        with torch.cuda.graph(graph):
            found = model(x, residual)
        for _ in range(2):
            graph.replay()
            expected = eager_of(linear, model)(x, residual)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            one_element(model)


def test_models_that_share_a_weight_and_streams(linear: ModuleType) -> None:
    models = [linear.ModelNew().cuda() for _ in range(6)]  # more than one operator keeps
    models[1].fc = models[0].fc
    x, residual = normal(ROWS, INNER), normal(ROWS, COLUMNS)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for turn in range(3):
        torch.cuda.synchronize()
        results = []
        for i, model in enumerate(models):
            with torch.cuda.stream(streams[(i + turn) % 3]), torch.no_grad():
                results.append(model(x, residual))
        torch.cuda.synchronize()
        for model, found in zip(models, results, strict=True):
            with torch.no_grad():
                expected = eager_of(linear, model)(x, residual)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        behind_autograd(models[0])


def test_gradients_are_those_of_eager(linear: ModuleType) -> None:
    model = linear.ModelNew().cuda()
    old = eager_of(linear, model)
    x, residual = normal(ROWS, INNER).requires_grad_(), normal(ROWS, COLUMNS).requires_grad_()
    grads = [
        torch.autograd.grad(m(x, residual).square().sum(), (x, residual, *m.parameters()))
        for m in (model, old)
    ]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)


def test_results_are_the_same_at_each_call(matmul: ModuleType) -> None:
    x, y = normal(ROWS, INNER), normal(COLUMNS, INNER)
    first = matmul.ModelNew()(x, y)
    assert all(torch.equal(matmul.ModelNew()(x, y), first) for _ in range(10))
