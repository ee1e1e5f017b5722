"""What torch's flags allow, and that emitted files read them alike: in processes of their own, as
flags that are set for all operators and for each cannot be put back.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKED = """
import torch
from importlib.resources import files
from opweld.capture.flags import allows_tf32, allows_tf32_convolutions

cudnn = torch.backends.cudnn
names = {"torch": torch}
text = files("opweld").joinpath("emission/texts/flags/tf32_convolutions.txt").read_text("utf-8")
exec(text, names)


def require(answer):
    assert allows_tf32_convolutions() is answer, "the compiler"
    assert names["_allows_tf32_convolutions"]() is answer, "an emitted file"

"""
CASES = {
    "by default": "require(True)",
    "of all operators": """
for flag in (False, True):
    cudnn.allow_tf32 = flag
    require(flag)
""",
    "of convolutions": """
if hasattr(cudnn, "conv"):
    for precision, allowed in (("ieee", False), ("tf32", True)):
        cudnn.conv.fp32_precision = precision
        require(allowed)
""",
    "of others": """
if hasattr(cudnn, "conv"):
    cudnn.conv.fp32_precision = "ieee"
    cudnn.rnn.fp32_precision = "tf32"
    require(False)
""",
    "of products": """
for precision in ("highest", "high", "medium"):
    torch.set_float32_matmul_precision(precision)
    assert allows_tf32() is (precision != "highest")
""",
}


def ran(text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ASKED + text]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", CASES)
def test_flags(case: str) -> None:
    done = ran(CASES[case])
    assert done.returncode == 0, done.stderr


def test_a_wrong_answer_is_found() -> None:
    assert "the compiler" in ran("require(False)").stderr
