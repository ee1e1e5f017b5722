"""Names and expressions in the texts that are emitted, of C++, CUDA and Python."""

from __future__ import annotations

import re

# Keywords and types of C++ and CUDA that models like to use as names, and the names that the
# kernels themselves use.
RESERVED = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class compl concept const consteval constexpr constinit const_cast continue co_await "
    "co_return co_yield decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept "
    "not not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
    "requires return "
    "short signed sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename typeof union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq "
    "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t cudaStream_t blockIdx "
    "threadIdx blockDim gridDim warpSize INFINITY NAN "
    "op operands call length "
    "lane lane_at first last stop next begin end stream num_elems max_offset aligned narrow "
    "launch blocks Index kLanes kBlock main in out row rest at k outer within place block "
    "count product workspace held changed contract inside outside computed operand epilogue memory "
    "num_batches num_rows num_columns num_inner num_shared num_keys row_step at_batch at_shared "
    "query_lines key_lines value_lines shared_of place_of score_of "
    "forms device_guard channels_last "
    "scan carry carries packets packet known load rank kernel fold "
    "strip strip_row fold_strip span kSpan rest partial partials whole piece pieces stride from "
    "to".split()
)
# Loop variables, sizes, results, strides, vectors, lanes, and the pointers of entry points.
_PATTERN = re.compile(
    r"(i|r|s|value|above_i|above_r)\d*|_\w*|\w*__\w*"
    r"|\w+_(stride\d+|vector|block|data|matrix|flat|lane|total|extreme|takes|row|partial)"
)


def is_reserved(name: str) -> bool:
    return name in RESERVED or _PATTERN.fullmatch(name) is not None


# Of operators, those that are computed first have the highest.
_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2}


def without_calls(text: str) -> str:
    """The text without what stands in parentheses."""
    while (inner := re.sub(r"\([^()]*\)", "", text)) != text:
        text = inner
    return text


def bare(text: str) -> str:
    """Without parentheses around all of it."""
    inner = text[1:-1]
    whole = text == f"({inner})" and not set("()") & set(without_calls(inner))
    return inner if whole else text


def infix(left: str, operator: str, right: str) -> str:
    """The expression of two operands in C or Python, which are in parentheses where they are
    expressions: in arithmetic without those that the order of operators makes needless.
    """
    if own := _LEVELS.get(operator):
        left = bare(left) if _level(bare(left)) >= own else left
        right = bare(right) if _level(bare(right)) > own else right
    return f"{left} {operator} {right}"


def _level(text: str) -> int:
    """That of the operator that is computed last; 0 of what is not arithmetic throughout."""
    operators = without_calls(text).split(" ")[1::2]
    signed = text.startswith(("-", "!", "~"))
    return 0 if signed else min((_LEVELS.get(each, 0) for each in operators), default=3)
