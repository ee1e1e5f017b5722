"""What ModelNew is asked with in the process that holds it, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.judge.load import CandidateError
from opweld.judge.values import Check
from opweld.judge.verify.modes import OWN

# How a call is made: as it comes, on a stream of its own, or behind other work on the stream.
PLAIN, SIDE_STREAM, BUSY_STREAM = "", "side stream", "busy stream"


class Raised(CandidateError):
    """The candidate raised; the message names file, line and error.

    `lost` says that the device is of no use any more, `overwrote` that an input or buffer changed
    that the original leaves alone, `without_gradients` that its outputs carry none, `no_memory`
    that there was none left.
    """

    FLAGS = ("lost", "overwrote", "without_gradients", "no_memory")

    def __init__(
        self,
        sentence: str,
        *,
        lost: bool = False,
        overwrote: bool = False,
        without_gradients: bool = False,
        no_memory: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.lost = lost
        self.overwrote = overwrote
        self.without_gradients = without_gradients
        self.no_memory = no_memory

    @property
    def is_refusal(self) -> bool:
        """Whether the candidate does no more than say that it does not do this."""
        return not (self.lost or self.overwrote or self.no_memory)

    def refusal(self, name: str) -> Check:
        """The check of something that the candidate may refuse; it fails where it did more."""
        if not self.is_refusal:
            return Check(name, False, str(self), grade="F")
        return Check(name, True, f"unsupported: {self}", skipped=True, unsupported=True)


@dataclass(frozen=True, slots=True)
class Files:
    """The two files, and how ModelNew is to be built.

    `builds` is the folder for the kernels that the file builds, "" for torch's own; `mode` is the
    one that the pair is judged in; `module_name` is the model file's module, drawn where it is "".
    `reference` and `candidate` name functions that stand for Model and ModelNew.
    """

    model_path: str
    new_path: str
    device: str
    seed: int
    builds: str = ""
    mode: str = OWN
    module_name: str = ""
    reference: str = ""
    candidate: str = ""


@dataclass(frozen=True, slots=True)
class How:
    """How one call is made.

    `like` is the original's run of the same call: an input or buffer changed beyond those that it
    changed raises. With `same_memory` the values go into the tensors of the last call, through
    `.data`, where shapes and layouts allow: neither object, address nor version tells. With
    `guarded` the memory around inputs and results is watched. `autocast` names the dtype of the
    autocast that is on, `weight` a parameter that is given in the place of the first input of its
    shape; with `inference` the call is in inference mode.
    """

    seed: int
    grad: bool = False
    watch_state: bool = False
    filled: bool = False
    same_memory: bool = False
    stream: str = PLAIN
    guarded: bool = False
    autocast: str = ""
    weight: str = ""
    inference: bool = False
