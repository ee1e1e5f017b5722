"""What capture learned beside the tensor operations: when the graph is what the module would do.

The emitted forward checks these facts at each call and otherwise runs the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .graph import Graph
from .types import TensorType


@dataclass(frozen=True, slots=True)
class InputFact:
    """One leaf of the forward's arguments.

    `access` is a Python expression over the forward's parameters ("x", "pair[1]", "options['k']").
    A tensor has a `type` (symbolic sizes named); anything else has a `literal` it must equal, in
    type too. Facts about containers ("len(pair)", "tuple(options)") stand before those of their
    elements.
    """

    access: str
    type: TensorType | None
    literal: Any = None


@dataclass(frozen=True, slots=True)
class WeightFact:
    """A parameter or buffer: `path` is its dotted name below the module.

    The graph's node of it has the access "self.<path>". `layout` is torch's name: one that is not
    strided goes to PyTorch's calls alone.
    """

    path: str
    type: TensorType
    layout: str = "strided"


@dataclass(frozen=True, slots=True)
class CallableValue:
    """An attribute that is a function or a class: it must be the one named "module:qualname"."""

    name: str


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """An attribute that cannot be compared: its type must be "module:qualname", no more."""

    type_name: str


@dataclass(frozen=True, slots=True)
class ModuleFact:
    """A submodule (path "" is the module itself) whose forward ran during capture.

    `type_name` is "module:qualname". `attributes` are the plain values that its forward read, by
    name or by dotted name (those of an object that it holds); values are plain Python values, torch
    dtypes and the like, nested lists, tuples and dicts of them, CallableValue or OpaqueValue. The
    name "_modules" stands for the names of its children, in order. `mode` is the training flag that
    the graph is right for, None where it does not matter. Where weights are `parametrized`, the
    type is the one before: each such module has a class of its own, derived from that.
    """

    path: str
    type_name: str
    attributes: tuple[tuple[str, Any], ...]
    mode: bool | None
    parametrized: bool = False


@dataclass(frozen=True, slots=True)
class SymbolFact:
    """A symbolic size: where it is read, and the sizes that the graph is proved for.

    `access` is (input access, axis); `upper` None means unbounded. Sizes 0 and 1 are included only
    where a capture at that size gave the same graph.
    """

    name: str
    access: tuple[str, int]
    lower: int
    upper: int | None
    example: int


@dataclass(frozen=True, slots=True)
class Contract:
    """All that must hold at a call for the graph to stand for the module's forward.

    `parameters` are the forward's own parameters as text, for the emitted signature. With
    `row_major` all tensors must lie so in memory: numbers are drawn in the order of memory. Without
    `gradients` the graph has the results of the forward, but not its gradients; with
    `forward_only` its kernels would make these slower than the original does. `assigned` are
    buffers that are another tensor after each call, of the same type.
    """

    signature: str
    inputs: tuple[InputFact, ...]
    weights: tuple[WeightFact, ...]
    modules: tuple[ModuleFact, ...]
    symbols: tuple[SymbolFact, ...]
    row_major: bool = False
    gradients: bool = True
    forward_only: bool = False
    assigned: tuple[InputFact, ...] = ()

    @property
    def differentiable(self) -> bool:
        """Whether kernels run where gradients are asked for."""
        return self.gradients and not self.forward_only


@dataclass(frozen=True, slots=True)
class Needs:
    """What a file is to have kernels for.

    `mode` is "eval", "training" or "both", or "own" for the one that the module is in. The dtypes
    of `autocast` and `dtypes` ("float16", say) are beside what the example call needs: no autocast,
    and its own dtype. `dynamic` are axes of inputs, by access, whose sizes vary from call to call,
    beside the batch.
    """

    mode: str = "own"
    autocast: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    dynamic: tuple[tuple[str, int], ...] = ()


EXAMPLE_ONLY = Needs()


@dataclass(frozen=True, slots=True)
class Submodule:
    """A class of submodules that is fused by itself, where no graph holds the whole model.

    `name` is that of its class in the emitted file, derived from `type_name` ("module:qualname");
    `label` ends the names of its kernels, and `paths` are those of its modules below the model.
    """

    name: str
    label: str
    type_name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """One captured forward.

    `autocast` is the state it was captured in: None or a dtype; `also` names the autocast dtypes in
    which the graph is the same. `training` is the mode that the module as a whole was in; with
    `other_mode` it is not the file's first one, and another computation. `dtype` is that of the
    module's floating tensors where it is not the example's own. It is the forward of a `submodule`,
    or of the whole model; or the body of a `loop` in it, by the label; or the `backward` of a fused
    group, by its label.
    """

    name: str
    autocast: str | None
    graph: Graph
    contract: Contract
    also: tuple[str, ...] = ()
    training: bool = False
    other_mode: bool = False
    dtype: str = ""
    submodule: Submodule | None = None
    loop: str = ""
    backward: str = ""

    @property
    def mode(self) -> str:
        """The mode that it was captured in, in a word."""
        return "training" if self.training else "eval"

    @property
    def state(self) -> str:
        """The state that it is for, "" for the example's: "training, autocast float16", say."""
        autocast = f"autocast {self.autocast}" if self.autocast else ""
        mode = self.mode if self.other_mode else ""
        return ", ".join(part for part in (mode, self.dtype, autocast) if part)

    @property
    def suffix(self) -> str:
        """What ends the names of its kernels."""
        parts = (self.autocast or "", self.loop, self.backward)
        return self.guard_suffix + "".join(f"_{part}" for part in parts if part)

    @property
    def guard_suffix(self) -> str:
        """What ends the name of its guard, which does not ask for autocast."""
        label = self.submodule.label if self.submodule else ""
        mode = self.mode if self.other_mode else ""
        parts = (label, mode, f"in_{self.dtype}" if self.dtype else "")
        return "".join(f"_{part}" for part in parts if part)


@dataclass(frozen=True, slots=True)
class Capture:
    """The result of the first stage: the same module in one or several states, that of the example
    call (in the mode that was asked for, without autocast) first. `kept` has states in which the
    original runs, with the reason. Where the variants are of submodules, `left` has what runs as it
    is, with the reason: the forward of the model "", and submodules by their paths.
    """

    name: str
    variants: tuple[Variant, ...]
    kept: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
