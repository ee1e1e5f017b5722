"""Texts of kernels whose warps are made to drift apart, so that a missing order between them shows.

Each function returns the CUDA text with something added that changes no result of a right kernel,
and fails where the text has changed so that nothing would be added.
"""

from __future__ import annotations

# A quarter of the warps sleep for up to 8 microseconds, each time others.
SLEEP = """__device__ __forceinline__ void sleep_at_random() {
    const unsigned int hash =
        (unsigned(clock()) + blockIdx.x * 97 + threadIdx.x / 32 * 131) * 2654435761u;
    if ((hash >> 30) == 0) __nanosleep((hash >> 12) & 8191);
}
"""
BARRIER = "// A barrier in shared memory: a phase ends"
WAIT = "__device__ __forceinline__ void wait(uint32_t parity) const {"
ARRIVE = "__device__ __forceinline__ void arrive() {"
EXPECT = "__device__ __forceinline__ void expect(uint32_t bytes) {"
COPIER = "if (threadIdx.x == Tile::kThreads && fits) fill_images<Tile>(block, memory);"
# The three warps beside the copying one read shared memory as fast as they can.
CONTENTION = (
    COPIER
    + """
        if (threadIdx.x >= Tile::kThreads + 32) {
            const uint32_t from = shared_address(&memory) + threadIdx.x % 32 * 128;
            for (int i = 0; i < block.tiles() * 200; ++i) {
                uint32_t word, at = from + i % 32 * 4;
                asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
            }
        }"""
)


def replaced(text: str, old: str, new: str) -> str:
    assert old in text, f"the kernels have no {old!r} any more"
    return text.replace(old, new)


def with_sleeps(text: str, *places: str) -> str:
    """Sleeps at the beginning of these methods of barriers in shared memory."""
    for place in places:
        text = replaced(text, place, f"{place} sleep_at_random();")
    return replaced(text, BARRIER, f"{SLEEP}\n{BARRIER}")


def sleeping_everywhere(text: str) -> str:
    return with_sleeps(text, WAIT, *(each for each in (ARRIVE, EXPECT) if each in text))


def sleeping_before_waits(text: str) -> str:
    """A sleep before an arrival hides what the arrival forgot to wait for; these do not."""
    return with_sleeps(text, WAIT)


def with_contention(text: str) -> str:
    """Loads from shared memory take longer: attention made for Hopper has warps to spare for it."""
    return replaced(text, COPIER, CONTENTION)


def as_it_was(text: str) -> str:
    """Attention when the copy of the next tile could overwrite scales that were being loaded: they
    were loaded right before the arrival, and no fence stood between.
    """
    text = replaced(text, "        fence_proxy();\n    }\n", "    }\n")
    late = "stage.column_scales + kPiece * 64 + 8 * n + int(threadIdx.x) % 4 * 2"
    return replaced(
        text,
        "const float2 scale = column_scales[n];",
        f"const float2 scale = *reinterpret_cast<const float2*>({late});",
    )
