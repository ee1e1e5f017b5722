"""The C functions beside a reduction of one weight whose results are kept from call to call:

int <group>_check(...)   finds out on the device whether what is kept is stale
int <group>_give(...)    copies a kept result, and remembers what it was made of
"""

from __future__ import annotations

from ..layout import head

KEPT_PARAMETERS = {
    "check": (
        *("const void* weight", "int64_t words", "const void* head", "void* call"),
        *("int changed", "void* stream"),
    ),
    "give": (
        *("const void* weight", "int64_t words", "void* head", "const void* call"),
        *("const void* kept", "void* result", "int64_t result_words", "void* stream"),
    ),
}
KEPT_PIECES = ("held_weights", "check_kept", "give_kept")


def kept_entries(group: str) -> list[str]:
    """Their definitions, by those of the device library."""
    lines = []
    for name, parameters in KEPT_PARAMETERS.items():
        given = ", ".join(each.rpartition(" ")[2] for each in parameters)
        lines += [
            head(f'extern "C" int {group}_{name}', list(parameters), " {"),
            f"  return op::{name}_kept({given});",
            "}",
        ]
    return lines
