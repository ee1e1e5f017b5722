"""What the pages quote of emitted files stands in such files: in this order, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, Block, blocks_of

from opweld.driver import compile_file
from opweld.options import Options

NORM = """
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(32, 64), nn.BatchNorm1d(64)

    def forward(self, x):
        return nn.functional.gelu(self.norm(self.fc(x)))
"""
RUNNING = """
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 2
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return torch.relu(y - self.mean)
"""
EXPERTS = """
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        if x.sum() > 0:
            x = -x
        return sum(expert(x) for expert in self.experts)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)) * 2.0 + 1.0)
"""
BLOCKS = """
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))
"""
CELL = """
    def __init__(self):
        super().__init__()
        self.from_x, self.from_h = nn.Linear(64, 64), nn.Linear(64, 64)

    def step(self, x, h):
        z = torch.sigmoid(self.from_x(x) + self.from_h(h))
        return (1 - z) * torch.tanh(h) + z

    def forward(self, x):
        h = x.new_zeros(x.shape[0], x.shape[2])
        outs = []
        for step in x.unbind(1):
            h = self.step(step, h)
            outs.append(h)
        return torch.stack(outs, 1)
"""
GATE = """
    def forward(self, x):
        a, b = x.chunk(2, 1)
        return a * torch.sigmoid(b)
"""
# The forward behind each excerpt's title, the shape of its input, and what it was made for.
OF = {
    "gate": (GATE, "16, 32", "sm_90a"),
    "small calls": (BLOCKS, "16, 64", "sm_90a"),
    "Linear, BatchNorm1d, GELU": (NORM, "16, 32", "cpu"),
    "a running mean": (RUNNING, "16, 32", "cpu"),
    "what is written for it": (RUNNING, "16, 32", "cpu"),
    "experts": (EXPERTS, "16, 32", "cpu"),
    "blocks": (BLOCKS, "16, 64", "sm_90a"),
    "their loop": (BLOCKS, "16, 64", "sm_90a"),
    "a recurrent cell": (CELL, "4, 24, 64", "cpu"),
}
EXCERPTS = [b for page in PAGES for b in blocks_of(page) if b.title.startswith("excerpt: ")]


def emitted(block: Block, folder: Path) -> str:
    forward, shape, target = OF[block.title.removeprefix("excerpt: ")]
    path = folder / "model.py"
    path.write_text(
        f"import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):{forward}\n\n"
        f"def get_inputs():\n    return [torch.randn({shape})]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return compile_file(path, Options(target=target, check=False)).text


def missing(block: Block, text: str) -> list[str]:
    """Lines that do not follow in the text; comments name files of the reader's own."""
    lines = iter([line.strip() for line in text.splitlines()])
    quoted = [line.strip().removesuffix(" ...") for line in block.body.splitlines()]
    return [q for q in quoted if q and not q.startswith("#") and q not in lines]


def test_each_excerpt_has_a_model() -> None:
    assert {b.title.removeprefix("excerpt: ") for b in EXCERPTS} == set(OF)


@pytest.mark.parametrize("block", EXCERPTS, ids=lambda block: block.title)
def test_an_excerpt_is_of_an_emitted_file(block: Block, tmp_path: Path) -> None:
    text = emitted(block, tmp_path)
    assert missing(block, text) == []
    assert missing(Block("p", 1, "python", "", "no such line"), text)
