"""What torch's flags allow, and that emitted files read them alike: each case in a process of its
own, as flags that are set for all operators and for each cannot be put back.
"""

from __future__ import annotations

import json
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


EACH = """
import json, os, sys, traceback

def said(case):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            exec(case)
            error = ""
        except BaseException:
            error = traceback.format_exc()
        os.write(write, error.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        return text.read()

print(json.dumps({name: said(case) for name, case in json.load(sys.stdin).items()}))
"""
WRONG = {"a wrong answer": "require(False)"}


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """What each case says where it fails. One process imports, and each case is a fork of it."""
    command = [sys.executable, "-c", ASKED + EACH]
    cases = json.dumps(CASES | WRONG)
    done = subprocess.run(command, input=cases, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_flags(case: str, errors: dict[str, str]) -> None:
    assert errors[case] == ""


def test_a_wrong_answer_is_found(errors: dict[str, str]) -> None:
    assert "the compiler" in errors["a wrong answer"]
