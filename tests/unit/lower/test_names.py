from __future__ import annotations

import keyword

import pytest
from tests.unit.plan.plans import Make

from opweld.ir.syntax import RESERVED, is_reserved
from opweld.ir.types import DType
from opweld.lower.names import Names, stride_name, wish_for


def test_a_name_is_given_once() -> None:
    names = Names()
    assert [names.fresh("x") for _ in range(3)] == ["x", "x_1", "x_2"]
    assert names.fresh("x_1") == "x_1_1"


def test_numbered_names_begin_with_one() -> None:
    names = Names()
    assert names.fresh("x", always_number=True) == "x_1"
    assert names.fresh("x", always_number=True) == "x_2"
    assert names.fresh("x") == "x"


def test_what_is_no_identifier_becomes_one() -> None:
    names = Names()
    assert names.fresh("fc.bias") == "fc_bias"
    assert names.fresh("2nd") == "x_2nd"
    assert names.fresh("") == "x"
    assert names.fresh("größe") == "gr_e"
    assert names.fresh("__init__") == "init"
    assert names.fresh("a__b") == "a_b"


@pytest.mark.parametrize(
    "name",
    ["float", "template", "xor", "int64_t", "constexpr", "i", "i0", "i12", "s3", "value4", "row",
     "above_i2", "x_stride0", "x_1_vector", "x_data", "num_elems", "lane", "at", "op"],
)  # fmt: skip
def test_names_that_kernels_use_are_numbered(name: str) -> None:
    assert is_reserved(name)
    given = Names().fresh(name)
    assert given == f"{name}_1" and not is_reserved(given)


@pytest.mark.parametrize(
    "name", ["x", "scale", "shift", "size", "index", "result", "value", "data"]
)
def test_names_of_models_stay(name: str) -> None:
    assert name == "value" or not is_reserved(name)
    assert not keyword.iskeyword(name)


def test_reserved_words_are_words() -> None:
    assert all(word.isidentifier() for word in RESERVED)


def test_what_a_value_is_called() -> None:
    m = Make()
    x, w = m.x("x", 4), m.w("fc.bias", 4)
    call = m.call(x)
    item = m.arena.item(call, 0, x.type)
    assert [wish_for(n) for n in (x, w, call, item, m.exp(x))] == [
        "x", "fc_bias", "linear", "linear", "exp_out",
    ]  # fmt: skip
    assert wish_for(m.reshape(m.exp(x), *x.type.shape, 1)) == "exp_out"  # behind a view
    assert stride_name("x", 2) == "x_stride2"
    assert m.const(1.0, DType.F32).type.rank == 0
