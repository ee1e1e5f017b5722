"""The pointwise functions agree with PyTorch, as C++ and as CUDA."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills
from tests.unit.device.functions import BY_NAME, FLOAT_TO_FLOAT, OF_FLOATS, OF_INTEGERS, Function
from tests.unit.device.programs import (
    FLOATS,
    INTEGERS,
    build_cpp,
    cpp_text,
    cuda_text,
    run_cpp,
    run_emulated,
    variants,
)
from tests.unit.device.samples import dense, grid, hard, near, rms, scale, show

from opweld.device import names, pieces

Run = Callable[[Function, Sequence[torch.Tensor]], torch.Tensor]

# fmod has no vector form, and the others are made of it.
SCALAR = ("fmod", "remainder", "div_floor")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    # Without -fno-ipa-icf the compiler merges equal loops and reports only one of them.
    folder = tmp_path_factory.mktemp("device")
    return build_cpp(cpp_text(), folder, "-fopt-info-vec-optimized", "-fno-ipa-icf")


@pytest.fixture(params=["c++", "cuda"])
def run(request: pytest.FixtureRequest, compiled: tuple[ctypes.CDLL, str]) -> Run:
    if request.param == "cuda":
        return run_emulated
    return lambda function, values: run_cpp(compiled[0], function, values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_hard_values(run: Run, name: str, dtype: torch.dtype):
    """NaN, infinities, zeros, subnormal and huge numbers: eager's answer or the float64 one."""
    function = BY_NAME[name]
    values = hard(function, dtype)
    result, eager = run(function, values), function.reference(*values)
    if function.returns_bool:
        assert torch.equal(result, eager)
        return
    exact = function.reference(*[v.double() for v in values])
    smallest = torch.finfo(dtype).smallest_normal * 1e-3
    allowed = 8 * torch.finfo(dtype).eps * scale(function, values, exact) + smallest
    wrong = ~(near(result, eager, allowed) | near(result.double(), exact, allowed))
    assert not wrong.any(), show(values, result, eager, wrong)


@pytest.mark.parametrize("name", FLOAT_TO_FLOAT)
def test_float32_is_as_exact_as_eager(compiled: tuple[ctypes.CDLL, str], name: str):
    """The root mean square error against float64 is at most a tenth above eager's."""
    function = BY_NAME[name]
    values = dense(function, torch.float32, 200_000)
    exact = function.reference(*[v.double() for v in values])
    ours = run_cpp(compiled[0], function, values).double() - exact
    eager = function.reference(*values).double() - exact
    finite = torch.isfinite(exact) & torch.isfinite(eager)
    assert torch.isfinite(ours[finite]).all()
    assert rms(ours[finite]) <= 1.1 * rms(eager[finite]) + 1e-30


@pytest.mark.parametrize("name", FLOAT_TO_FLOAT)
def test_dense_samples(run: Run, name: str):
    function = BY_NAME[name]
    for dtype in FLOATS:
        values = dense(function, dtype, 20_000)
        exact = function.reference(*[v.double() for v in values])
        error = (run(function, values).double() - exact).abs()
        smallest = torch.finfo(dtype).smallest_normal
        allowed = 8 * torch.finfo(dtype).eps * scale(function, values, exact) + smallest
        wrong = error > allowed
        assert not wrong.any(), (dtype, show(values, error, allowed, wrong))


def test_the_logarithm_is_exact_over_all_magnitudes(run: Run):
    """Within a unit in the last place, of subnormal numbers as of those next to 1."""
    bits = torch.arange(1, 0x7F800000, 7919, dtype=torch.int32)
    near_one = torch.arange(0x3F7FF000, 0x3F801000, dtype=torch.int32)
    x = torch.cat([bits, near_one]).view(torch.float32)
    exact = torch.log(x.double())
    ulp = 2.0 ** (torch.frexp(exact).exponent.double() - 24)
    off = (run(BY_NAME["log"], [x]).double() - exact).abs() / ulp
    assert off.max() <= 1.0


def test_ratios_are_exact_over_all_magnitudes(run: Run):
    """Within a unit in the last place, or of the smallest numbers; zeros with their signs."""
    random = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, 400_000), generator=random).to(torch.int32)
    a, b = bits.view(torch.float32)
    a, b = torch.cat([a, torch.tensor([0.0, -0.0])]), torch.cat([b.abs(), torch.ones(2)])
    a, b = a[a.isfinite() & (b >= 1)], b[a.isfinite() & (b >= 1)]
    exact = a.double() / b.double()
    ulp = 2.0 ** (torch.frexp(exact).exponent.double() - 24).clamp(min=-149)
    result = run(BY_NAME["ratio"], [a, b])
    assert ((result.double() - exact).abs() <= ulp).all()
    assert torch.equal(result.signbit(), exact.signbit())


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_are_exact(run: Run, name: str, dtype: torch.dtype):
    function = BY_NAME[name]
    info = torch.iinfo(dtype)
    some = (0, 1, 2, 3, 5, 7, 8, 31, 100, -1, -2, -3, -7, -100, info.max, info.min, info.max - 1)
    numbers = torch.tensor([n for n in some if info.min <= n <= info.max], dtype=dtype)
    values = grid(numbers, function.num_values)
    if name in ("fmod", "remainder", "div_trunc", "div_floor"):
        # PyTorch raises for a zero divisor, and the processor for lowest / -1.
        defined = (values[1] != 0) & ~((values[1] == -1) & (values[0] == info.min))
        values = [v[defined] for v in values]
    if name == "pow":
        values = [v[values[1] >= 0] for v in values]
    result, want = run(function, values), _integer_reference(function, values)
    assert torch.equal(result, want), show(values, result, want, result != want)


def _integer_reference(function: Function, values: Sequence[torch.Tensor]) -> torch.Tensor:
    if function.name == "heaviside":
        x, value = values
        return torch.where(x == 0, value, (x > 0).to(x.dtype))
    if function.name == "sign" and values[0].dtype is torch.uint8:
        return (values[0] > 0).to(torch.uint8)
    return function.reference(*values)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_never_traps(run: Run, dtype: torch.dtype):
    """What PyTorch leaves undefined on a GPU or refuses on the CPU still gives a number."""
    info = torch.iinfo(dtype)
    a = torch.tensor([info.min, info.min, info.max, 0], dtype=dtype)
    b = torch.tensor([-1 if info.min else 1, 0, 0, 0], dtype=torch.int64).to(dtype)
    lowest_over_minus_one = run(BY_NAME["div_trunc"], [a, b])
    assert lowest_over_minus_one[0] == info.min
    assert (lowest_over_minus_one[1:] == torch.tensor(-1).to(dtype)).all()
    assert run(BY_NAME["remainder"], [a, b])[0] == 0


def test_integer_power_with_negative_exponent(run: Run):
    a = torch.tensor([1, -1, -1, 2, -3, 1], dtype=torch.int64)
    b = torch.tensor([-5, -3, -4, -1, -2, -1], dtype=torch.int64)
    assert run(BY_NAME["pow"], [a, b]).tolist() == [1, -1, 1, 0, 0, 1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="libmvec's x86 forms")
def test_loops_are_vectorised(compiled: tuple[ctypes.CDLL, str]):
    text, messages = cpp_text().splitlines(), compiled[1]
    found = {
        int(line) for line in re.findall(r"text\.cpp:(\d+):\d+: optimized: loop vec", messages)
    }
    lines = {text.index(f"  for (long i = 0; i < n; ++i) out[i] = {c}"): n for n, c in _loops(text)}
    missing = {name for line, name in lines.items() if line + 1 not in found}
    assert missing == {f"{name} {dtype}" for name in SCALAR for dtype in FLOATS}


def _loops(text: Sequence[str]) -> list[tuple[str, str]]:
    head = "  for (long i = 0; i < n; ++i) out[i] = "
    floats = [f"{f.name} {dtype}" for f, dtype in variants() if dtype in FLOATS]
    loops = [line.removeprefix(head) for line in text if line.startswith(head)]
    return [(loop.split("// ")[1], loop) for loop in loops if loop.split("// ")[1] in floats]


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_compiles_for_the_gpu_without_spills(arch: str):
    uses = compile_cuda(cuda_text(), arch)
    assert len(uses) == len(list(variants()))
    require_no_spills(uses)


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_each_piece_names_what_it_calls(language: str):
    known = set(names(language))
    for name in names(language):
        text = "\n".join(pieces([name], language))
        code = re.sub(r"//[^\n]*", "", text)
        called = set(re.findall(r"op::(\w+)", code)) | set(re.findall(r"\bk[A-Z]\w+(?=<)", code))
        missing = {c for c in called & known if not re.search(rf"\b{c}\b[^;]*[{{=]", code)}
        defined = set(re.findall(r"^OPWELD_FN [^\n(]*?(\w+)\(", code, re.M))
        defined |= set(re.findall(r"(?:constexpr \w+|using|struct(?: alignas\(.*\))?) (\w+)", code))
        assert not missing and called & known <= defined, (name, called - defined)


TYPE = re.compile(r"(?:struct|using|class|typename(?:\.\.\.)?)(?: alignas\([^)]*\)+)? ([A-Z]\w*)")


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_each_piece_names_the_class_templates_that_it_uses(language: str):
    """A file that has the piece for this use alone would not compile."""
    known = set(TYPE.findall("\n".join(pieces(names(language), language))))
    for name in names(language):
        code = re.sub(r"//[^\n]*", "", "\n".join(pieces([name], language)))
        used = set(re.findall(r"(?<![:\w])([A-Z]\w+)(?=<)", code)) & known
        assert used <= set(TYPE.findall(code)), name


def test_pieces_come_once_and_after_what_they_need():
    texts = pieces(["mish", "silu", "sigmoid", "exp"], "cpp")
    assert len(set(texts)) == len(texts)
    position = {
        name: i for i, t in enumerate(texts) for name in re.findall(r"OPWELD_FN T (\w+)\(", t)
    }
    assert position["exp"] < min(position[n] for n in ("mish", "silu", "sigmoid"))


def test_unknown_piece():
    with pytest.raises(KeyError, match="no_such"):
        pieces(["no_such"])
