"""The mode that a pair is judged in, and the others that it is tried in."""

from __future__ import annotations

from torch import nn

# As it is judged, or as eval() and train() make it.
OWN, EVAL, TRAINING = "own", "eval", "training"


def put_in_mode(model: nn.Module, mode: str) -> nn.Module:
    """`model` itself, in the mode that is named; OWN is the one that it is in."""
    return model if mode == OWN else model.train(mode == TRAINING)


class Modes:
    """What a model is put in, and out of again: its submodules may be in different modes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._own = [(each, each.training) for each in model.modules()]

    @property
    def trains(self) -> bool:
        """Whether any of it is in training as it is judged."""
        return any(training for _, training in self._own)

    def put(self, mode: str) -> None:
        put_in_mode(self._model, mode)
        for each, training in self._own if mode == OWN else ():
            each.training = training
