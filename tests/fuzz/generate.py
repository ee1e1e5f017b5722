"""Random model files: a seed names a program (with one version of torch)."""

from __future__ import annotations

import random

import torch
from tests.fuzz import lines
from tests.fuzz.author import Author
from tests.fuzz.program import Program


def generate(seed: int) -> Program:
    """The program of a seed, valid on its own inputs."""
    author = Author(random.Random(seed), seed)
    with torch.no_grad():
        lines.write(author)
    return author.program()
