"""Both sides of a pair in training, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from opweld.judge.inputs.kinds import OwnInputs
from opweld.judge.load import Pair, build_original, import_model_file
from opweld.judge.process.protocol import Files
from opweld.judge.process.side import Side
from opweld.judge.training.curves import Asked, Training
from opweld.judge.training.distances import Outcome

CPU = torch.device("cpu")


def pair_of_files(model: Path, new: Path) -> Pair:
    module = import_model_file(model)
    side = Side()
    side.load(Files(str(model), str(new), "cpu", 7))
    return Pair(build_original(module, model, 7, CPU), side, module, model, new, CPU, None)


def train(pair: Pair, steps: int, seconds: float = 60.0, lowering: Any = None) -> Outcome:
    own = OwnInputs(pair, 7)
    return Training(pair, own, 7, lambda *_: None, lowering).check(Asked(steps, seconds))
