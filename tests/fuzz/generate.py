"""Random model files: a seed names a program (with one version of torch)."""

from __future__ import annotations

import random

import torch
from tests.fuzz import lines, rows
from tests.fuzz.author import Author
from tests.fuzz.program import Program

SHARE_OF_ROWS = 0.25


def generate(seed: int) -> Program:
    """The program of a seed, valid on its own inputs."""
    author = Author(random.Random(seed), seed)
    with torch.no_grad():
        (rows if is_of_rows(seed) else lines).write(author)
    return author.program()


def is_of_rows(seed: int) -> bool:
    """Whether its program is one of rows, known without writing it."""
    return random.Random(f"rows {seed}").random() < SHARE_OF_ROWS
