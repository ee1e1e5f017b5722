"""Data sheets: what each target can do. Every number has its source."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Target:
    """`language` is "cuda" or "c++"; `arch` is nvcc's name of the architecture, "" for the CPU."""

    name: str
    language: str
    arch: str
    access_bytes: int
    loads_in_flight: int
    pointwise_threads: int
    copy_bytes_per_s: float
    pointwise_flops_per_s: float


SM_90A = Target(
    name="sm_90a",
    language="cuda",
    arch="sm_90a",
    access_bytes=16,  # the widest load of a thread (PTX ISA, ld.global.v4.f32)
    # One access a thread in blocks of 128 beats two or four accesses and 32-byte lanes by 1 to 6 %,
    # and plain accesses beat streaming hints by 2 to 4 % (H200, 2026-11-21, torch 2.11, CUDA 13.0;
    # GELU 8192x8192, ReLU 4096x393216, a chain with broadcasts): occupancy hides the latency.
    loads_in_flight=1,
    pointwise_threads=128,
    copy_bytes_per_s=4.24e12,  # device-to-device copy, read + write, measured on an H200
    pointwise_flops_per_s=33.5e12,  # 132 SMs x 128 lanes x 1.98 GHz, one instruction a lane
)

SM_80 = Target(
    name="sm_80",
    language="cuda",
    arch="sm_80",
    access_bytes=16,
    loads_in_flight=1,
    pointwise_threads=128,
    # A100 80 GB data sheet: 2.04 TB/s, of which a copy reaches about 86 %.
    copy_bytes_per_s=1.75e12,
    pointwise_flops_per_s=9.7e12,  # 108 SMs x 64 lanes x 1.41 GHz
)

CPU = Target(
    name="cpu",
    language="c++",
    arch="",
    access_bytes=64,  # one AVX-512 register; g++ chooses the width, this only groups the loads
    loads_in_flight=1,
    pointwise_threads=1,
    copy_bytes_per_s=60e9,  # two recent server cores, large copies with recycled memory
    pointwise_flops_per_s=100e9,
)

TARGETS: dict[str, Target] = {target.name: target for target in (SM_90A, SM_80, CPU)}


def choose_target(name: str, capability: tuple[int, int] | None) -> Target:
    """The target called `name` ("auto", "cpu", "cuda", "sm_90a", "sm_80").

    `capability` is that of the GPU that is there, None where there is none. "cuda" without one
    means sm_90a, so that CUDA text can be made anywhere.
    """
    if name in TARGETS:
        return TARGETS[name]
    if capability is None:
        return SM_90A if name == "cuda" else CPU
    if capability == (9, 0):
        return SM_90A
    arch = f"sm_{capability[0]}{capability[1]}"
    return replace(SM_80, name=arch, arch=arch)
