"""Which declarations of device texts are used: found by name, kept with all that they name."""

from __future__ import annotations

import re

import pytest
from tests.golden.cases import EXAMPLES
from tests.golden.texts import example_graph, small_graphs

from opweld.device import _LIBRARIES
from opweld.device.used import Declaration, declarations, used
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.cuda.texts import cuda_texts
from opweld.target import SM_90A

PIECES = [
    pytest.param(piece.text, id=f"{language}-{name}")
    for language, library in _LIBRARIES.items()
    for name, piece in library.items()
]


@pytest.mark.parametrize("text", PIECES)
def test_a_piece_is_its_declarations(text: str) -> None:
    found = declarations(text)
    assert "\n".join(each.text for each in found) + "\n" == text
    assert all(part for each in found for part in each.parts)
    unnamed = [each.text for each in found if not each.names]
    assert all(re.search('^(#|extern "C")', each, re.MULTILINE) for each in unnamed)


@pytest.mark.parametrize("text", PIECES)
def test_a_comment_needs_no_declaration_before_it(text: str) -> None:
    """A file may have a declaration without the one that stands before it in the library."""
    assert not re.search(r"^// (The same|Likewise|As above)\b", text, re.M)


SMALL = """\
#include <math.h>
// what a macro does
#define TWICE(x) \\
    ((x) + (x))
constexpr int kOne = 1, kTwo = 2;
template <int kCount>
struct alignas(kCount * 4) Some {
    float value[kCount];
    static constexpr int kBytes = kCount * 4;
    float first() const { return value[0]; }
    float last() const { return value[kCount - kOne]; }
};
struct Other {};
template <typename T>
struct Size;
template <>
struct Size<Other> {
    static int get() { return kTwo; }
};
template <typename T>
__global__ void __launch_bounds__(32, 1) kernel(T* x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) *x = TWICE(*x);
}
void give(Other) {}
void give(float) {}
extern "C" int always() { return 0; }
"""


def names(kept: tuple[str, ...]) -> set[str]:
    return {name for each in declarations("\n".join(kept)) for name in each.names}


@pytest.mark.parametrize(
    ("user", "kept"),
    [
        ("nothing();", set()),
        ("kernel<<<1, 1>>>(x);  // not Other", {"kernel", "TWICE"}),
        ("Some<4> some; return some.first();", {"Some"}),
        ("Some<4> some; return some.last();", {"Some", "kOne", "kTwo"}),
        ("return Size<float>::get();", {"Size"}),
        ("return Size<Other>::get();", {"Size", "Other", "kOne", "kTwo"}),
        ("give(1.0f);", {"give"}),
    ],
)
def test_what_is_named_is_kept_with_what_it_names(user: str, kept: set[str]) -> None:
    assert names(used([SMALL], [user])) == kept


VALUES = """\
template <typename E>
constexpr bool is_large = true;
template <typename E, typename = void>
constexpr bool takes = false;
template <typename E>
constexpr bool takes<E, std::void_t<decltype(std::declval<E>().in_runs)>> =
    is_large<E>;
template <typename E>
constexpr int of_two<E, true> = E::kTwo;
"""


def test_values_that_are_special_for_some_types_are_kept_with_them() -> None:
    """And what they are then, which nothing else may name."""
    (text,) = used([VALUES], ["int x = takes<Type>;"])
    assert text.count("constexpr bool takes") == 2 and "is_large = true" in text
    assert "of_two" not in text


def test_members_that_nothing_names_go() -> None:
    (text,) = used([SMALL], ["Some<4> some; return some.last();"])
    assert "last()" in text and "float value[kCount]" in text
    assert "first()" not in text and "kBytes" not in text
    assert "always()" in text and "#include <math.h>" in text


@pytest.mark.parametrize("user", ["give(1.0f);", "give(Other());"])
def test_of_several_functions_of_a_name_those_of_known_types(user: str) -> None:
    (text,) = used([SMALL], [user])
    assert "give(float)" in text
    assert ("give(Other)" in text) == ("Other" in user)


@pytest.mark.parametrize("name", (*small_graphs(), *EXAMPLES))
def test_no_emitted_declaration_is_one_that_nothing_uses(name: str) -> None:
    graph = example_graph(name) if name in EXAMPLES else small_graphs()[name]
    device, texts = cuda_texts(lower(make_plan(graph, SM_90A)))
    every = [
        declared
        for each in declarations(device.replace("namespace op {", ""))
        for declared in (each, *each.members)
        if declared.names
    ]
    for declared in every:
        rest = "\n".join([device.replace(declared.text, ""), *texts])
        assert any(re.search(rf"\b{word}\b", rest) for word in declared.names), declared.text


def test_attention_has_queries_in_registers_or_in_memory() -> None:
    """Heads of 64 values or less have them in registers."""
    device, _ = cuda_texts(lower(make_plan(small_graphs()["attention"], SM_90A)))
    assert re.findall(r"struct QueriesSm90<Tile, (\w+)>", device) == ["true"]
    assert "wgmma(float (&sums)[32], uint64_t a" not in device


# Of pieces that are alternatives, of which a file has one.
ALTERNATIVES = {"RowOfBlocks"}


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_no_two_pieces_of_the_library_declare_one_type(language: str) -> None:
    """They may come into one file."""
    declared: dict[str, str] = {}
    for name, piece in _LIBRARIES[language].items():
        made = [each for each in declarations(piece.text) if not each.is_special]
        for found in {found for each in made if is_type(each) for found in each.names}:
            assert found in ALTERNATIVES or declared.setdefault(found, name) == name, found


def is_type(declaration: Declaration) -> bool:
    code = re.sub(r"//[^\n]*", "", declaration.text)
    kind = re.match(r"\s*(template <.*?>\s*)?(struct|enum|using|union)\b[^;]*[{=]", code, re.S)
    return kind is not None
