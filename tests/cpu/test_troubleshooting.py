"""Every message of the troubleshooting page is one that opweld says."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.cpu.test_bad_input import model, refused
from tests.gpu.emitting import all_convolutions_ours
from tests.shipping.test_wheel import shipped_for
from typer.testing import CliRunner

from opweld.delivery import check_result
from opweld.driver import compile_file
from opweld.errors import OpweldError
from opweld.interface.cli import app
from opweld.model_file import import_file
from opweld.options import Options

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| ", PAGE, re.MULTILINE)
DROPS = """def forward(self, x):
        return torch.dropout(torch.tanh(x), 0.5, self.training) * 3.0"""


SLOPES = """def forward(self, x):
        return torch.func.grad(lambda y: (y * y).sum())(x)"""


def said(*words: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 2, done.output
    return done.output


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(OpweldError) as found:
        call()
    return str(found.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "m.py"
    path.write_text(text)
    return path


def full_folder(folder: Path) -> str:
    (folder / "other").mkdir()
    (folder / "other" / "notes.txt").write_text("mine")
    return raised(lambda: check_result(folder / "other"))


def warned(path: Path, forward: Callable[[object], object] | None = None) -> str:
    """What an emitted file warns of: when it is imported, or when `forward` is called with it."""
    text = compile_file(path, Options(target="cpu", check=False, mode="eval")).text
    new = path.with_name("m_new.py")
    new.write_text(text)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module = import_file(new, f"warned_{path.parent.name}")
        if forward:
            forward(module)
    return " ".join(str(each.message) for each in found)


def without_compiler(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "no-such-compiler")
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder / "none"))
        return warned(model(folder)).replace(" (no-such-compiler)", "")


def in_training(folder: Path) -> str:
    def call(module: object) -> None:
        new = module.ModelNew().train()  # type: ignore[attr-defined]
        new(module.torch.ones(4, 8))  # type: ignore[attr-defined]

    return warned(model(folder, forward=DROPS), call)


def asking_for_gradients(folder: Path) -> str:
    """What a file for a GPU would say, had its kernels been built for where its tensors are."""
    convolves = """def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))"""
    path = model(folder, forward=convolves, inputs="[torch.randn(4, 8, 9, 9)]")
    with all_convolutions_ours():
        text = compile_file(path, Options(target="sm_90a", check=False)).text
    new = path.with_name("m_new.py")
    new.write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = import_file(new, "asking")
        module.ModelNew._opweld.devices = [torch.device("cpu")]
        module.ModelNew()(*module.get_inputs())
    return " ".join(str(each.message) for each in caught)


def for_a_gpu(folder: Path) -> str:
    path = folder / "m_new.py"
    path.write_text(compile_file(model(folder), Options(target="cpu", check=False)).text)
    return said("package", path, "--arch", "sm_90a")


SAYS: dict[str, Callable[[Path], str]] = {
    "does not define Model": lambda f: said("plan", written(f, "x = 1\n")),
    "is not Python": lambda f: said("plan", written(f, "def f(:\n")),
    "raises TypeError": lambda f: refused(model(f, init="[1, 2]")),
    "decides by the elements": lambda f: refused(
        model(f, forward="def forward(self, x):\n        return x if x.sum() > 0 else -x")
    ),
    "takes gradients of": lambda f: refused(model(f, forward=SLOPES)),
    "there is no target": lambda f: said("plan", model(f), "--target", "sm_7"),
    "is a folder with": full_folder,
    "is the model file": lambda f: raised(lambda: check_result(model(f), f / "m.py")),
    "there is no C\\+\\+ compiler": without_compiler,
    "gradients are asked for": asking_for_gradients,
    "in training mode": in_training,
    "is no account": lambda f: said("report", model(f)),
    "is no file that": lambda f: said("package", model(f)),
    "was made for cpu": for_a_gpu,
    "no CUDA device": lambda f: shipped_for("13", "13.0")[1],
}


def test_every_message_of_the_page_is_provoked() -> None:
    assert len(ROWS) == len(SAYS)
    for row, sign in zip(ROWS, SAYS, strict=True):
        assert re.search(sign, row), row


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_the_message_is_said(number: int, tmp_path: Path) -> None:
    pattern = ".*".join(re.escape(part) for part in ROWS[number].split("..."))
    message = list(SAYS.values())[number](tmp_path)
    assert re.search(pattern, message, re.DOTALL), message
