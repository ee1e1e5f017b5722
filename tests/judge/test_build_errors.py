"""What is left of the messages of a failed build: real ones of nvcc, g++, torch and Triton."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.judge.pairs import POINTWISE, judge_here, write
from torch.utils import cpp_extension

from opweld.judge.build.errors import explain
from opweld.judge.build.rules import FAILURES, HINTS
from opweld.judge.report import lines

TORCH = "/opt/v/lib/python3.12/site-packages/torch/include"
FOLDER = "/root/.cache/torch_extensions/py312_cu130/relu"
COMMAND = f"c++ -MMD -MF main.o.d -isystem {TORCH} -fPIC -std=c++20{{flag}} -c {FOLDER}/main.cpp"

CANDIDATE = '''\
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void relu_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[j], 0.0f);
    float y = 1.0f
}
"""
OTHER = """
torch::Tensor relu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    return undeclared_name;
}
torch::Tensor second(torch::Tensor x) {
    return undeclared_name;
}
"""
'''

NVCC = f"""\
[1/3] nvcc ... -std=c++20 -c {FOLDER}/cuda.cu -o cuda.cuda.o
FAILED: [code=2] cuda.cuda.o
{FOLDER}/cuda.cu(7): error: identifier "j" is undefined
      if (i < n) out[i] = fmaxf(x[j], 0.0f);
                                  ^

{FOLDER}/cuda.cu(9): error: expected a ";"
  }}
  ^

2 errors detected in the compilation of "{FOLDER}/cuda.cu".
ninja: build stopped: subcommand failed.
"""

GXX = f"""\
[1/2] {COMMAND.format(flag="")} -o main.o
FAILED: [code=1] main.o
{FOLDER}/main.cpp: In function ‘at::Tensor second(at::Tensor)’:
{FOLDER}/main.cpp:7:12: error: ‘undeclared_name’ was not declared in this scope
    7 |     return undeclared_name;
      |            ^~~~~~~~~~~~~~~
ninja: build stopped: subcommand failed.
"""

STD14 = f"""\
[1/2] {COMMAND.format(flag=" -std=c++14")} -o main.o
FAILED: [code=1] main.o
In file included from {TORCH}/torch/extension.h:6,
                 from {FOLDER}/main.cpp:1:
{TORCH}/torch/csrc/api/include/torch/all.h:5:2: error: #error C++17 or later compatible compiler \
is required to use PyTorch.
    5 | #error C++17 or later compatible compiler is required to use PyTorch.
      |  ^~~~~
{TORCH}/ATen/ATen.h:5:2: error: #error C++17 or later compatible compiler is required to use ATen.
    5 | #error C++17 or later compatible compiler is required to use ATen.
      |  ^~~~~
ninja: build stopped: subcommand failed.
"""

# A header that needs C++20 without asking for it.
STD17 = f"""\
[1/2] nvcc -isystem {TORCH} -std=c++17 -c {FOLDER}/cuda.cu -o cuda.cuda.o
{TORCH}/c10/util/StringUtil.h:65:22: error: ‘is_enum_v’ is not a member of ‘std’; did you mean \
‘is_enum’?
   65 |   if constexpr (std::is_enum_v<T> && !Streamable<T>::value) {{
      |                      ^~~~~~~~~
"""

UNDECLARED = f"""\
{FOLDER}/main.cpp: In function ‘void pybind11_init_relu(pybind11::module_&)’:
{FOLDER}/main.cpp:4:51: error: ‘relu_forward’ was not declared in this scope
    4 | m.def("relu_forward", torch::wrap_pybind_function(relu_forward), "relu_forward");
      |                                                   ^~~~~~~~~~~~
ninja: build stopped: subcommand failed.
"""

TEMPLATE = f"""\
/usr/include/c++/12/bits/stl_uninitialized.h: In instantiation of ‘constexpr bool f()’:
/usr/include/c++/12/bits/stl_vector.h:601:31:   required from ‘constexpr std::vector<_Tp>::vector()’
{FOLDER}/main.cpp:2:85:   required from here
/usr/include/c++/12/bits/stl_uninitialized.h:90:56: error: static assertion failed: result type \
must be constructible from input type
   90 |       static_assert(is_constructible<_ValueType, _Tp>::value,
      |                                                        ^~~~~
"""


def building(said: str) -> RuntimeError:
    return RuntimeError(f"Error building extension 'relu': {said}")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.py"
    path.write_text(CANDIDATE)
    return path


def told(error: BaseException, path: Path) -> list[str]:
    text = explain(error, path)
    assert text is not None
    return text.split("\n")


def test_an_error_of_nvcc_names_the_line_of_the_candidate(new: Path) -> None:
    assert told(building(NVCC), new) == [
        f'{new}:6: its CUDA does not compile: identifier "j" is undefined (and 1 more);'
        " declare the name, or mend it",
        'error: identifier "j" is undefined (and 1 more)',
        "new.py:6 | if (i < n) out[i] = fmaxf(x[j], 0.0f);",
        "hint: declare the name, or mend it",
    ]


def test_of_two_equal_lines_the_one_that_the_compiler_counts(new: Path) -> None:
    assert told(building(GXX), new)[2] == "new.py:16 | return undeclared_name;"
    first = GXX.replace(":7:12", ":4:12").replace("    7 |", "    4 |")
    assert told(building(first), new)[2] == "new.py:13 | return undeclared_name;"


def test_a_line_that_the_candidate_composes_keeps_the_compilers_place(new: Path) -> None:
    new.write_text("CUDA = '\\n'.join(...)")
    sentence, _, where, _ = told(building(NVCC), new)
    assert sentence.startswith(f'{new}: its CUDA does not compile: identifier "j" is undefined at')
    assert where == "cuda.cu:7 | if (i < n) out[i] = fmaxf(x[j], 0.0f);"


def test_braces_of_a_format_string_are_found(new: Path) -> None:
    new.write_text('TEXT = f"""\nvoid f() {{ g(); }}\n"""\n')
    said = 'k.cu(1): error: identifier "g" is undefined\n  void f() { g(); }\n             ^\n'
    assert told(building(said), new)[2] == "new.py:2 | void f() { g(); }"


@pytest.mark.parametrize("said", [STD14, STD17])
def test_an_old_standard_in_the_flags(said: str, new: Path) -> None:
    *_, where, hint = told(building(said), new)
    assert (
        hint == "hint: leave -std out of the flags: PyTorch passes the standard that its headers"
        " need"
    )
    assert where.startswith(("torch/all.h:5 | #error C++17", "torch/c10/util/StringUtil.h:65 | "))
    assert FOLDER not in "".join(told(building(said), new))


def test_a_new_standard_is_not_blamed(new: Path) -> None:
    said = STD17.replace("-std=c++17", "-std=c++20")
    assert "-std" not in "".join(told(building(said), new))


def test_a_name_of_functions_that_nothing_declares(new: Path) -> None:
    *_, where, hint = told(building(UNDECLARED), new)
    assert where.startswith('main.cpp:4 | m.def("relu_forward"')
    assert hint == "hint: declare each name of `functions` in cpp_sources"


def test_an_error_in_a_header_is_placed_where_it_was_asked_for(new: Path) -> None:
    _, error, where = told(building(TEMPLATE), new)
    assert error.startswith("error: static assertion failed") and where == "at main.cpp:2"


FAULTS = {
    "ninja": (
        "Ninja is required to load C++ extensions (pip install ninja to get it)",
        "it needs ninja to build its kernels",
        "pip install ninja",
    ),
    "toolkit": (
        "CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "it needs the CUDA toolkit, and PyTorch finds none",
        "CUDA_HOME",
    ),
    "nvcc": (
        "Error building extension 'k': [1/3] /usr/local/cuda/bin/nvcc -std=c++20 -c cuda.cu\n"
        "FAILED: [code=127] cuda.cuda.o\n/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\n",
        "it needs nvcc, which is not there",
        "opweld doctor",
    ),
    "nvcc called by itself": (
        "[Errno 2] No such file or directory: 'nvcc'",
        "it needs nvcc, which is not there",
        "opweld doctor",
    ),
    "c++": (
        f"Error building extension 'k': [1/2] {COMMAND.format(flag='')} -o main.o \n"
        "FAILED: [code=127] main.o \n/bin/sh: 1: c++: not found\n",
        "it needs the C++ compiler c++, which is not there",
        "apt-get install g++",
    ),
    "c++ asked for by torch": (
        "Command '['which', 'g++-14']' returned non-zero exit status 1.",
        "it needs the C++ compiler g++-14, which is not there",
        "or set CXX",
    ),
    "no image": (
        "CUDA error: no kernel image is available for execution on the device\n"
        "CUDA kernel errors might be asynchronously reported at some other API call",
        "its kernels are built for another GPU",
        "leave -arch and -gencode out of the flags",
    ),
    "no architecture": (
        "Error building extension 'k': nvcc fatal   : Unsupported gpu architecture 'compute_35'",
        "this nvcc cannot build for the architecture compute_35",
        "leave -arch and -gencode out of the flags",
    ),
    "an architecture that torch does not know": (
        "Unknown CUDA arch (7.3) or GPU not supported",
        "PyTorch knows no architecture 7.3",
        "TORCH_CUDA_ARCH_LIST",
    ),
    "flags": (
        "Error building extension 'k': nvcc fatal   : Unknown option '--no-such'",
        "nvcc refuses its flags: Unknown option '--no-such'",
        "extra_cuda_cflags",
    ),
    "shared memory": (
        "Error building extension 'k': ptxas error   : Entry function '_Z1kPf' uses too much shared"
        " data (0x27100 bytes, 0xc000 max)",
        "a kernel declares too much shared memory (0x27100 bytes, 0xc000 max)",
        "dynamic shared memory",
    ),
    "assembly": (
        "Error building extension 'k': ptxas /tmp/tmpxft_000022b8_00000000-6_p.ptx, line 27; "
        "error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted due to errors",
        "ptxas refuses its kernels: Unknown modifier '.bar'",
        "inline assembly",
    ),
    "library": (
        "Error building extension 'k': /usr/bin/ld: cannot find -lcublas: No such file",
        "it does not link: there is no library cublas",
        "extra_ldflags",
    ),
    "Triton's resources": (
        "out of resource: shared memory, Required: 300000, Hardware limit: 232448. Reducing block "
        "sizes or `num_stages` may help.",
        "takes more than the GPU has: shared memory, Required: 300000, Hardware limit: 232448",
        "smaller blocks",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_missing_or_refused(fault: str, new: Path) -> None:
    said, what, hint = FAULTS[fault]
    sentence, error, last = told(RuntimeError(said), new)
    assert sentence.startswith(f"{new}: ") and what in sentence and hint in sentence
    assert what in error and hint in last
    assert "_____" not in sentence and FOLDER not in sentence


needs_filt = pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is not on PATH")


@needs_filt
def test_an_undefined_symbol_is_demangled(new: Path) -> None:
    error = ImportError(f"{FOLDER}/relu.so: undefined symbol: _Z4reluN2at6TensorE")
    sentence = told(error, new)[0]
    assert "its library does not load: relu(at::Tensor) is declared and nowhere defined" in sentence


@needs_filt
def test_a_symbol_of_pytorch_means_another_pytorch(new: Path) -> None:
    error = ImportError(
        f"{FOLDER}/k.so: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jS2_"
    )
    sentence = told(error, new)[0]
    assert "PyTorch has no c10::detail::torchCheckFail(char const*" in sentence
    assert "built against another PyTorch" in sentence


def test_a_kernel_of_triton_names_its_line(new: Path) -> None:
    new.write_text(
        "@triton.jit\ndef first(n, BLOCK):\n    i = tl.arange(0, BLOCK)\n\n\n"
        "@triton.jit\ndef kernel(n, BLOCK):\n    j = 0\n    i = tl.arange(0, BLOCK)\n"
    )
    said = "at 3:8:\ndef kernel(n, BLOCK):\n    j = 0\n    i = tl.arange(0, BLOCK)\n        ^"
    try:
        raise Exception(said) from ValueError("arange's range must be a power of 2")
    except Exception as error:
        sentence, _, where = told(error, new)
    assert sentence.endswith(
        "its Triton kernel does not compile: arange's range must be a power of 2"
    )
    assert where == "new.py:9 | i = tl.arange(0, BLOCK)"


def test_megabytes_of_errors_are_one(new: Path) -> None:
    said = STD14 + STD17.replace("std=c++17", "std=c++14") * 50_000
    sentence, error, *_ = told(building(said), new)
    assert error.startswith("error: #error C++17 or later")
    assert error.endswith("required to use PyTorch. (and 2 more)")
    assert len(sentence) < 400


def test_many_errors_are_not_counted(new: Path) -> None:
    said = "".join(f'k.cu({n}): error: identifier "j" is undefined\n' for n in range(900))
    assert told(building(said), new)[1].endswith("is undefined (and more than 20 more)")


def test_what_a_command_printed_counts(new: Path) -> None:
    error = subprocess.CalledProcessError(2, ["nvcc"], output=b"", stderr=NVCC.encode())
    assert told(error, new)[0].startswith(f'{new}:6: its CUDA does not compile: identifier "j"')


def test_the_first_cause_is_found_behind_what_the_file_raises(new: Path) -> None:
    try:
        try:
            raise building(NVCC)
        except RuntimeError as error:
            raise ValueError("no extension for you") from error
    except ValueError as error:
        assert 'identifier "j" is undefined' in told(error, new)[0]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x must be positive"),
        RuntimeError("CUDA out of memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
        KeyError("error"),
        SystemExit(3),
    ],
)
def test_other_errors_are_not_explained(error: BaseException, new: Path) -> None:
    assert explain(error, new) is None


def test_every_rule_has_its_words() -> None:
    assert all(rule.hint and rule.what for rule in FAILURES)
    assert all(rule.hint and not rule.hint.endswith(".") for rule in HINTS)


# No header of torch is read, so that this takes a second.
BROKEN = '''
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" int add(int a, int b) {
    return a + c;
}
"""
load_inline("broken", SOURCE, no_implicit_headers=True, is_python_module=False, verbose=VERBOSE)

class ModelNew(nn.Module):
    pass
'''


@pytest.mark.parametrize("verbose", [False, True])
def test_a_build_that_fails_is_a_verdict_in_a_few_lines(
    verbose: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    model = write(tmp_path / "model.py", POINTWISE)
    new = write(tmp_path / "new.py", BROKEN.replace("VERBOSE", str(verbose)))
    line = 1 + new.read_text().splitlines().index("    return a + c;")
    verdict = judge_here(model, new).verdict
    assert not verdict.passed and verdict.grade == "F"
    assert verdict.reason.startswith(
        f"{new}:{line}: its C++ does not compile: ‘c’ was not declared"
    )
    assert verdict.explanation[1] == f"new.py:{line} | return a + c;"
    assert 2 < len(verdict.explanation) < 5 and "\n" not in verdict.reason


def test_the_explanation_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: False)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    model = write(tmp_path / "model.py", POINTWISE)
    judgement = judge_here(model, write(tmp_path / "new.py", BROKEN.replace("VERBOSE", "False")))
    assert "hint: pip install ninja" in list(lines(judgement))


def test_a_candidate_that_asks_for_cpp14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # g++ goes on for minutes after the first of its thousands of errors
    compiler = tmp_path / "brief-c++"
    compiler.write_text('#!/bin/sh\nexec c++ -fmax-errors=5 "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    model = write(tmp_path / "model.py", POINTWISE)
    judgement = judge_here(model, Path(__file__).with_name("std14.py"))
    assert not judgement.verdict.passed
    assert "leave -std out of the flags" in judgement.verdict.reason
    assert "C++17 or later" in judgement.verdict.reason
