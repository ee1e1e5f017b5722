"""Data sheets: what each target can do. Every number has its source.

Numbers without a measurement are NVIDIA's data sheets' of the product, without sparsity; shares of
them that ours and copies reach are estimates, those that were measured on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .errors import UnsupportedTarget
from .ir.kernels.product import Mode


@dataclass(frozen=True, slots=True)
class ProductRates:
    """How fast matrix products of one mode are, in operations (two a term) a second.

    `overhead_us` is what a product of ours takes beside the multiplying and the splitting,
    `library_us` what the library's takes beside the multiplying, and `given_us` a million results
    to what follows; `short` is our rate where sums are too short for splitting
    (contract_short.cuh), where it is another.
    """

    ours: float
    library: float
    overhead_us: float = 0.0
    given_us: float = 0.0
    library_us: float = 0.0
    short: float | None = None
    live: float | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What `opweld tune` tries for a pointwise group: bytes of one access of the widest type,
    accesses in flight, threads a block; in all combinations.
    """

    access_bytes: tuple[int, ...]
    vectors: tuple[int, ...]
    threads: tuple[int, ...]


GPU_TRIED = Tried((16, 32), (1, 2, 4), (128, 256, 512))
# One lane: each row by a loop of its own, however short it is.
CPU_TRIED = Tried((64, 1), (1,), (1,))


@dataclass(frozen=True, slots=True)
class RowBlockLimits:
    """When a product of the library's and its tail run in row blocks, and in how large ones.

    The results of a block should fit into `cache_bytes`; a block has `least_rows` to `most_rows`.
    Results below `least_bytes` stay in the cache anyway. `flops_per_s` is the library's rate, and
    `packings` how often its second operand could be moved in the time that a block costs beside.
    """

    cache_bytes: int
    least_rows: int
    most_rows: int
    least_bytes: int
    packings: int
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """`language` is "cuda" or "c++"; `arch` is nvcc's name of the architecture, "" for the CPU, and
    `gpu` what torch's name of the device contains. Targets of one architecture share their measured
    schedules.

    `products` are the modes of matrix products that kernels of ours make, each with its rates;
    `tensor_cores` is the family of those kernels, by its piece of the device library. `row_blocks`
    is None where the library's products run whole.
    """

    name: str
    language: str
    arch: str
    gpu: str
    access_bytes: int
    loads_in_flight: int
    pointwise_threads: int
    copy_bytes_per_s: float
    pointwise_flops_per_s: float
    # What a row of a reduction may take of the chip: shared memory of each multiprocessor, and
    # blocks that read each other's.
    shared_bytes: int = 0
    cluster_blocks: int = 1
    # Blocks of a launch that may wait for each other, where that pays: one on each multiprocessor.
    device_blocks: int = 0
    # Bytes of which what was read is still near when it is read again; whether a thread may keep
    # what it would read from farther away.
    cache_bytes: int = 0
    holds_operands: bool = False
    # Whether kernels can find that what they made of a weight still holds.
    keeps_results: bool = False
    multiprocessors: int = 1
    # Rows of a reduction that keep every processor busy.
    rows_in_flight: int = 1
    reduction_threads: int = 1
    cuts_at_launch: bool = False
    # Elements of a row that stay on the chip from walk to walk; None where to read them again takes
    # no longer than to compute more in one walk.
    held_row_elems: int | None = None
    tensor_cores: str = "none"
    products: frozenset[Mode] = frozenset()
    product_rates: Mapping[Mode, ProductRates] = field(default_factory=dict)
    tried: Tried = GPU_TRIED
    row_blocks: RowBlockLimits | None = None

    @property
    def measured_as(self) -> str:
        """The target under which the table of measured schedules has its rows."""
        return self.arch or self.name


def _mma_rates(
    float32: float, tf32: float, half: float, short: float, mma: float | None = None
) -> Mapping[Mode, ProductRates]:
    """Rates of ours by mma.sync beside a library with the given ones.

    `mma` is the rate of mma.sync in 16 bits, the library's where not given. A float32 product is
    three such products, at two thirds of it; one in TF32 is one, promoted three times as often, at
    half of it: estimates. `short` is that of FMA.
    """
    ours = half if mma is None else mma
    return {
        Mode.FAITHFUL: ProductRates(
            ours * 2 / 9, float32, overhead_us=17.0, library_us=9.0, short=short
        ),
        Mode.TF32: ProductRates(ours / 2, tf32, overhead_us=12.0, short=short),
        Mode.HALF: ProductRates(ours, half),
        Mode.BFLOAT16: ProductRates(ours, half),
    }


SM_90A = Target(
    name="sm_90a",
    language="cuda",
    arch="sm_90a",
    gpu="H200",
    access_bytes=16,  # the widest load of a thread (PTX ISA, ld.global.v4.f32)
    # One access a thread in blocks of 128 beats two or four accesses and 32-byte lanes by 1 to 6 %,
    # and plain accesses beat streaming hints by 2 to 4 % (H200, 2026-11-21, torch 2.11, CUDA 13.0;
    # GELU 8192x8192, ReLU 4096x393216, a chain with broadcasts): occupancy hides the latency.
    loads_in_flight=1,
    pointwise_threads=128,
    copy_bytes_per_s=4.24e12,  # device-to-device copy, read + write, measured on an H200
    pointwise_flops_per_s=33.5e12,  # 132 SMs x 128 lanes x 1.98 GHz, one instruction a lane
    shared_bytes=228 * 1024,
    cluster_blocks=8,
    device_blocks=132,
    # Half of an H200's 50 MB of L2: each of its halves may keep a copy of what both read.
    cache_bytes=25_000_000,
    holds_operands=True,
    keeps_results=True,
    multiprocessors=132,
    rows_in_flight=264,  # two blocks for each of 132 SMs
    reduction_threads=256,
    cuts_at_launch=True,
    held_row_elems=32768,  # 8 packets of 16 bytes in the registers of each of 1024 threads
    tensor_cores="sm90",
    products=frozenset(Mode),
    # The library's: 1024x8192x8192 on an H200, 2026-11-21, torch 2.11, CUDA 13.0; the weaker of
    # that and 8192^3 is 51, 346, 692 and 662e12. Ours in float32: 8192^3 by three float16 products,
    # promoted every 64 terms, in the same run 4.9 to 5.0 ms; 1024x8192x8192 0.56 to 0.61 ms. Ours
    # in TF32, by one such product, is an estimate: of the tensor cores' 660e12 in that run, three
    # quarters with a promotion after 4 instead of 12 of their instructions. Short, an estimate: of
    # the data sheet's 67e12, what is left where every fourth instruction adds nothing to a sum and
    # 9 to 16 terms take as long as 16. Live: 256x524288 by 524288x256, and 512 x 65536 terms. Ours
    # of 16 bits: 82 to 87 % of the library, 94 % at 8192^3 (H200, 2026-11-21); a million results
    # take 0.5 to 1.5 us with a ReLU, up to twice that with a sigmoid and a tanh, while the tensor
    # cores wait: no faster than the library and a kernel (2026-11-23, benchmarks/README.md).
    product_rates={
        Mode.FAITHFUL: ProductRates(
            220e12, library=51e12, overhead_us=17.0, library_us=9.0, short=30e12, live=85e12
        ),
        Mode.TF32: ProductRates(480e12, library=379e12, overhead_us=12.0, short=30e12),
        Mode.HALF: ProductRates(ours=590e12, library=706e12, given_us=1.0),
        Mode.BFLOAT16: ProductRates(ours=615e12, library=736e12, given_us=1.0),
    },
)

SM_80 = Target(
    name="sm_80",
    language="cuda",
    arch="sm_80",
    gpu="A100",
    access_bytes=16,
    loads_in_flight=1,
    pointwise_threads=128,
    # A100 80 GB data sheet: 2.04 TB/s, of which a copy reaches about 86 %.
    copy_bytes_per_s=1.75e12,
    pointwise_flops_per_s=9.7e12,  # 108 SMs x 64 lanes x 1.41 GHz
    shared_bytes=100 * 1024,  # the least of the architectures from sm_80 on
    cache_bytes=20_000_000,  # half of the 40 MB of an A100
    holds_operands=True,
    keeps_results=True,
    multiprocessors=108,
    rows_in_flight=216,  # two blocks for each of 108 SMs
    reduction_threads=256,
    cuts_at_launch=True,
    held_row_elems=32768,  # 8 packets of 16 bytes in the registers of each of 1024 threads
    tensor_cores="mma",
    products=frozenset({Mode.FAITHFUL, Mode.TF32}),
    # A100 data sheet.
    product_rates=_mma_rates(float32=19.5e12, tf32=156e12, half=312e12, short=8e12),
)

H100 = replace(
    SM_90A,
    name="h100",
    gpu="H100",
    copy_bytes_per_s=2.96e12,  # H100 SXM data sheet: 3.35 TB/s, of which a copy takes 88 %
)

L40S = replace(
    SM_80,
    name="l40s",
    arch="sm_89",
    gpu="L40S",
    copy_bytes_per_s=0.74e12,  # L40S data sheet: 864 GB/s, of which a copy takes 86 %
    pointwise_flops_per_s=45.8e12,  # 142 SMs x 128 lanes x 2.52 GHz
    cache_bytes=48_000_000,  # half of 96 MB, the L2 of all of its chip (Ada whitepaper, AD102)
    multiprocessors=142,
    rows_in_flight=284,  # two blocks for each of 142 SMs
    # L40S data sheet.
    product_rates=_mma_rates(float32=91.6e12, tf32=183e12, half=362e12, short=37e12),
)

RTX_4090 = replace(
    L40S,
    name="rtx4090",
    gpu="RTX 4090",
    copy_bytes_per_s=0.87e12,  # Ada whitepaper: 1008 GB/s, of which a copy takes 86 %
    pointwise_flops_per_s=41.3e12,  # 128 SMs x 128 lanes x 2.52 GHz
    cache_bytes=36_000_000,  # half of the 72 MB of L2 (Ada whitepaper)
    multiprocessors=128,
    rows_in_flight=256,  # two blocks for each of 128 SMs
    # Ada whitepaper; 16-bit with sums in float32.
    product_rates=_mma_rates(float32=82.6e12, tf32=82.6e12, half=165e12, short=33e12),
)

B200 = replace(
    SM_80,
    name="b200",
    arch="sm_100",
    gpu="B200",
    copy_bytes_per_s=7.0e12,  # HGX B200 data sheet: 8 TB/s, of which a copy takes 88 %
    pointwise_flops_per_s=37.5e12,  # 148 SMs x 128 lanes x 1.98 GHz
    # Half of the L2 that an H200 has: more is there, but in two dies, and was not measured.
    cache_bytes=25_000_000,
    multiprocessors=148,
    rows_in_flight=296,  # two blocks for each of 148 SMs
    # HGX B200 data sheet, a GPU's share, by instructions that ours do not use (tcgen05). mma.sync,
    # which they use, is taken to be as fast as on an H100, where it reaches 62 % of 989e12.
    product_rates=_mma_rates(75e12, tf32=1.1e15, half=2.25e15, short=30e12, mma=613e12),
)

CPU = Target(
    name="cpu",
    language="c++",
    arch="",
    gpu="",
    access_bytes=64,  # one AVX-512 register; g++ chooses the width, this only groups the loads
    loads_in_flight=1,
    pointwise_threads=1,
    cache_bytes=2**24,  # a core's share of the 32 MiB of L3 of the two cores below
    rows_in_flight=16,  # as many threads, or a few rows for each of a few
    # One walk for the largest and the powers takes 1.3 to 1.8 times as long as two, for the sum and
    # the squares 1.3 to 1.6 times, in rows of 40000 to 16M float32 (AVX-512, g++ 12.2, 2026-11-22).
    held_row_elems=None,
    copy_bytes_per_s=60e9,  # two recent server cores, large copies with recycled memory
    pointwise_flops_per_s=100e9,
    tried=CPU_TRIED,
    # Two cores of an AMD EPYC with 1 MiB of L2 each and 32 MiB of L3, 2026-11-21, torch 2.13, MKL
    # (benchmarks/row_blocks.py). Packings are counted so that what took longer in blocks stays
    # whole: with a bias, sums of 64 terms gain 23 %, of 256 1 to 2 %, and of 512 lose 6 %.
    row_blocks=RowBlockLimits(
        cache_bytes=2**20,
        least_rows=512,
        most_rows=1024,
        least_bytes=2**22,
        packings=6,
        flops_per_s=170e9,
    ),
)

TARGETS: dict[str, Target] = {
    target.name: target for target in (SM_90A, H100, SM_80, L40S, RTX_4090, B200, CPU)
}

# Architectures that nvcc knows and no data sheet here is of, with the target whose figures stand
# for theirs: plans are chosen by them, results do not depend on them.
_LIKE = {
    "sm_86": L40S,
    "sm_87": L40S,
    "sm_88": L40S,
    "sm_103": B200,
    "sm_110": B200,
    "sm_120": RTX_4090,
    "sm_121": RTX_4090,
}
OTHERS: dict[str, Target] = {
    arch: replace(target, name=arch, arch=arch, gpu="") for arch, target in _LIKE.items()
}
ALIASES: dict[str, Target] = {
    "h200": SM_90A,
    "sm_90": SM_90A,
    "a100": SM_80,
    "sm_89": L40S,
    "sm_100": B200,
}


def choose_target(name: str, capability: tuple[int, int] | None, gpu: str = "") -> Target:
    """The target called `name`: "auto", "cuda", or one of TARGETS, OTHERS and ALIASES.

    `capability` and `gpu`, torch's name of the device, are those of the GPU that is there; None
    where there is none. Of several data sheets of its architecture it gets the one with its name,
    or the first. "cuda" without a GPU means sm_90a, so that CUDA text can be made anywhere.

    Raises:
        UnsupportedTarget: the GPU's architecture is none of these.
    """
    named = {**ALIASES, **OTHERS, **TARGETS}
    if name in named:
        return named[name]
    if capability is None:
        return SM_90A if name == "cuda" else CPU
    arch = f"sm_{capability[0]}{capability[1]}"
    every = (*TARGETS.values(), *OTHERS.values())
    known = [target for target in every if target.arch.rstrip("a") == arch]
    if not known:
        listed = ", ".join(f"{each.name} ({each.gpu})" for each in TARGETS.values() if each.gpu)
        advice = f"name the nearest with --target: {listed}"
        if capability < (8, 0):
            advice = "use --target cpu; kernels need compute capability 8.0"
        raise UnsupportedTarget(
            f"there is no data sheet of this GPU's architecture, {arch}", next_step=advice
        )
    return next((target for target in known if target.gpu in gpu), known[0])
