"""Ways in which a build fails, as data: what the tools say, what it means, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.interface.doctor import INSTALL_GXX, INSTALL_NINJA, INSTALL_NVCC

ANOTHER_PYTORCH = "it was built against another PyTorch: remove its build folder, or mend its flags"
ARCHITECTURE = (
    "leave -arch and -gencode out of the flags and TORCH_CUDA_ARCH_LIST unset:"
    " PyTorch then builds for the GPU that is there"
)
TOOLKIT = f"{INSTALL_NVCC}, or set CUDA_HOME to a toolkit; `opweld doctor` shows what is missing"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that no line of the source is to blame for: the groups of `pattern` fill `what`."""

    pattern: str
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Hint:
    """What to do about a compiler's message.

    `pattern` is searched for in three lines: the message, `at FILE` and the source line, and the
    language standards that the build's commands ask for.
    """

    pattern: str
    hint: str


FAILURES: tuple[Failure, ...] = (
    Failure("Ninja is required", "it needs ninja to build its kernels", INSTALL_NINJA),
    Failure(
        r"CUDA_HOME environment variable is not set|CUDA was not found on the system",
        "it needs the CUDA toolkit, and PyTorch finds none",
        TOOLKIT,
    ),
    Failure(
        r"nvcc not found at|nvcc['\"]?: (?:not found|command not found|No such file)"
        r"|No such file or directory: '(?:\S*/)?nvcc'",
        "it needs nvcc, which is not there",
        TOOLKIT,
    ),
    Failure(
        r"\['which', '(?P<tool>[^']+)'\]' returned non-zero"
        r"|(?P<missing>[\w+.-]*(?:g\+\+|c\+\+|clang)\S*): (?:not found|command not found)",
        "it needs the C++ compiler {tool}{missing}, which is not there",
        f"{INSTALL_GXX}, or set CXX",
    ),
    Failure(
        r"no kernel image is available",
        "its kernels are built for another GPU: no kernel image is available for this one",
        ARCHITECTURE,
    ),
    Failure(
        r"(?i)unsupported gpu architecture '?(?P<arch>\w+)"
        r"|Value '(?P<value>\w+)' is not defined for option 'gpu-",
        "this nvcc cannot build for the architecture {arch}{value}",
        ARCHITECTURE,
    ),
    Failure(
        r"Unknown CUDA arch \((?P<arch>[^)]*)\)",
        "PyTorch knows no architecture {arch}",
        ARCHITECTURE,
    ),
    Failure(
        r"PTX was compiled with an unsupported toolchain",
        "its PTX is newer than the driver can read",
        "build for the GPU's own architecture, or update the driver",
    ),
    Failure(
        r"detected CUDA version \(?(?P<found>[\d.]*).*mismatches the version",
        "the CUDA toolkit {found} is not the one that PyTorch was built with",
        "set CUDA_HOME to a toolkit of PyTorch's own major version",
    ),
    Failure(
        r"undefined symbol: (?P<symbol>_ZN?K?(?:3c10|2at|5torch|6caffe2)\w*)",
        "its library does not load: PyTorch has no {symbol}",
        ANOTHER_PYTORCH,
    ),
    Failure(
        r"undefined symbol: (?P<symbol>\w+)",
        "its library does not load: {symbol} is declared and nowhere defined",
        "define it with the same arguments as in the declaration, or link what defines it",
    ),
    Failure(
        r"undefined reference to [`'\"](?P<name>[^'\"`]+)",
        "it does not link: {name} is declared and nowhere defined",
        "define it with the same arguments as in the declaration, or link what defines it",
    ),
    Failure(
        r"multiple definition of [`'\"](?P<name>[^'\"`]+)",
        "it does not link: {name} is defined twice",
        "define it in one source and declare it in the other",
    ),
    Failure(
        r"cannot find -l(?P<library>[\w+.-]+)",
        "it does not link: there is no library {library}",
        "install the library, or name its folder by -L in extra_ldflags",
    ),
    Failure(
        r"uses too much shared data \((?P<sizes>[^)]*)\)",
        "a kernel declares too much shared memory ({sizes})",
        "declare less, or use dynamic shared memory with cudaFuncSetAttribute",
    ),
    Failure(
        r"out of resource: (?P<what>.*?Hardware limit:? ?\d+)",
        "a Triton kernel takes more than the GPU has: {what}",
        "take smaller blocks, or fewer stages",
    ),
    Failure(
        r"(?:Killed|Terminated) signal terminated program (?P<tool>\w+)|(?P<other>nvcc|cicc|ptxas)"
        r" died due to signal 9",
        "the compiler {tool}{other} was killed, probably for lack of memory",
        "set MAX_JOBS=1, or build with fewer template instances",
    ),
    Failure(
        r"No space left on device",
        "the build found no space left on the disk",
        "free some, or set TORCH_EXTENSIONS_DIR to another folder",
    ),
    Failure(
        r"ptxas (?:\S+, line \d+; )?(?:fatal|error)\s*: (?P<said>.+)",
        "ptxas refuses its kernels: {said}",
        "see what the message names in the PTX or the inline assembly",
    ),
    Failure(
        r"nvcc fatal\s*: (?P<said>.+)",
        "nvcc refuses its flags: {said}",
        "mend extra_cuda_cflags",
    ),
    Failure(
        r"unrecognized command[- ]line option [‘'\"](?P<flag>[^’'\"]+)",
        "the compiler has no option {flag}",
        "mend extra_cflags or extra_cuda_cflags",
    ),
)

HINTS: tuple[Hint, ...] = (
    Hint(
        r"#error C\+\+\d+ or later|(?s:at torch/.*-std=(?:c|gnu)\+\+(?:0x|1[147])\b)",
        "leave -std out of the flags: PyTorch passes the standard that its headers need",
    ),
    Hint(
        r"unsupported GNU version",
        "install a g++ that this CUDA supports and set CXX to it, or take a newer CUDA toolkit",
    ),
    Hint(
        r"not declared in this scope.*\n.*m\.def\(",
        "declare each name of `functions` in cpp_sources",
    ),
    Hint(
        r"\bPython\.h: No such file",
        "install Python's headers: apt-get install python3-dev",
    ),
    Hint(
        r"(?:cuda_runtime\w*|cuda|nv/target|cublas\w*|curand\w*|cusparse)\.h(?:pp)?\W.*No such file"
        r"|cannot open source file \"(?:cuda|cublas|curand|cusparse)",
        "the CUDA toolkit lacks this header: install it whole, and see `opweld doctor`",
    ),
    Hint(
        r"No such file or directory|cannot open source file",
        "name its folder in extra_include_paths, or leave the header out",
    ),
    Hint(
        r"identifier \"(?:__half|half|__nv_bfloat16|__hip_bfloat16)\"|unknown type name '__half'",
        "include <cuda_fp16.h> or <cuda_bf16.h>",
    ),
    Hint(
        r"getCurrentCUDAStream|\"cuda\" (?:is|has no member)|namespace \"at(?:::cuda)?\"",
        "include <ATen/cuda/CUDAContext.h>",
    ),
    Hint(
        r"expected unqualified-id|expected a \"?;|expected .;. before|expected a declaration",
        "look for what is missing just before this line",
    ),
    Hint(r"not declared in this scope|is undefined|undeclared", "declare the name, or mend it"),
)
