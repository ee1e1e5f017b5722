"""ModelNew in a process of its own, seen from the referee: asked by frames and watched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from opweld.errors import OpweldError, from_data
from opweld.judge.load import Call, CandidateError
from opweld.judge.measure.clock import Action, nothing
from opweld.judge.numerics.compare import same_bits
from opweld.judge.numerics.differentiate import Backward, GradOutputs
from opweld.judge.process import candidate
from opweld.judge.process.connection import CandidateEnded, Connection
from opweld.judge.process.leaf import Place, RemoteLeaf, ResultHandle, elements
from opweld.judge.process.memory import (
    ProcessMemory,
    available_bytes,
    extent_bytes,
    make_room,
)
from opweld.judge.process.observe import WRITES, PlacedInputs
from opweld.judge.process.processes import idle_clause
from opweld.judge.process.protocol import Files, How, Raised
from opweld.judge.process.remote_blocks import RemoteBlocks
from opweld.judge.process.side import State
from opweld.judge.process.wire import (
    BadFrame,
    Header,
    Wire,
    dtype_named,
    pack_call,
)
from opweld.judge.sparse import as_dense
from opweld.judge.tree import tensors
from opweld.judge.values import KernelTiming, from_plain
from opweld.judge.verify.run import Run
from opweld.judge.verify.signature import Signature, read_parameters
from opweld.judge.witness.watch import Watch, Witness

_T = TypeVar("_T")
WHOLE_BYTES = "OPWELD_JUDGE_WHOLE_BYTES"
# What one read of an output takes of the memory that is free; beyond it outputs come in pieces.
_WHOLE_SHARE = 16
# Inputs on a device up to this size are looked at behind every call.
_FETCHED_BACK_BYTES = 2**20


class RemoteSide:
    """The methods of `Side`, over the wire."""

    def __init__(self, connection: Connection, witness: Witness | None = None) -> None:
        self._connection = connection
        self._wire = Wire(connection.send_all, connection.receive_all)
        self._device = torch.device("cpu")
        self._dropped: list[int] = []
        self._inputs = PlacedInputs(connection.shared)
        self._memory: ProcessMemory | None = None
        self._witness = witness
        self._watch = Watch(self._ask, connection.pid, witness)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def pids(self) -> set[int]:
        """Of the candidate's process and its witness."""
        return {self.pid} | ({self._witness.pid} if self._witness else set())

    @property
    def pid(self) -> int:
        return self._connection.pid

    def step(self, what: str) -> None:
        """Names what is asked for next, for the sentence of a crash."""
        self._connection.step = what

    def load(self, files: Files, meanwhile: Action = nothing) -> None:
        self._device = torch.device(files.device)
        reply = self._ask({"ask": "begin", "files": asdict(files)})
        with contextlib.suppress(OSError):  # where the system does not allow it, it is asked
            self._memory = ProcessMemory(self.pid)
        self._parsed(lambda: self._watch.begin(reply, self._memory, files))
        self._send({"ask": "load"})
        meanwhile()
        loaded = self._bare_reply()
        self._parsed(lambda: self._watch.loaded(loaded))

    def _parsed(self, read: Callable[[], _T]) -> _T:
        """What is read of an answer, where it is one."""
        try:
            return read()
        except (KeyError, TypeError, ValueError, BadFrame, RuntimeError) as error:
            self._nonsense(error)

    def build(self, seed: int) -> None:
        self._inputs.forget()
        self._ask({"ask": "build", "seed": seed})

    def state(self, like: State) -> State:
        """The state, sparse entries dense; those of other names, sizes, dtypes or layouts than in
        `like` come without their data.
        """
        reply = self._ask({"ask": "state"})
        return {name: self._entry(leaf, like.get(name)) for name, leaf in self._state_leaves(reply)}

    def _entry(self, leaf: RemoteLeaf, like: Tensor | None) -> Tensor:
        if like is None or not _agree(leaf, like, "shape", "dtype", "layout"):
            return torch.empty(leaf.shape, dtype=leaf.dtype, layout=leaf.layout, device="meta")
        leaf.device = like.device
        return self._whole(leaf)

    def load_state(self, state: State) -> None:
        call, data = pack_call(Call((state,), {}))
        self._ask({"ask": "load_state", "call": call}, data)

    def change_weights(self, seed: int, way: str) -> None:
        self._ask({"ask": "change_weights", "seed": seed, "way": way})

    def signature(self) -> Signature:
        reply = self._ask({"ask": "signature"})
        try:
            constructor, forward = reply["functions"]
            return read_parameters(constructor), read_parameters(forward)
        except (KeyError, TypeError, ValueError) as error:
            self._nonsense(error)

    def train(self, mode: str) -> None:
        self._ask({"ask": "train", "mode": mode})

    def convert(self, dtype: str) -> None:
        self._inputs.forget()
        self._ask({"ask": "convert", "dtype": dtype})

    def settings_changed(self) -> dict[str, tuple[str, str]]:
        return self._parsed(self._watch.settings_changed)

    @property
    def reads_memory(self) -> bool:
        return self._watch.reads_memory

    def patched(self) -> list[str]:
        return self._parsed(self._watch.patched)

    def process_changed(self) -> list[str]:
        return self._parsed(self._watch.process_changed)

    def run(self, call: Call, how: How, like: Run | None = None, lazy: bool = False) -> Run:
        make_room(self._device)
        self._inputs.require_untouched()
        if self._device.type != "cpu":
            packed, data = pack_call(call)
            found = self._run_of(self._asked_to_run(packed, data, how, like), like, lazy)
            if like is not None and not (how.guarded or how.weight):
                self._compare_inputs(call, like)
            return found
        placed = self._inputs.place(call, how.same_memory, how.guarded)
        # what lies around the inputs is watched here
        reply = self._asked_to_run(placed.header, placed.text, replace(how, guarded=False), like)
        run = self._lazy_run_of(reply)
        found = self._inputs.seen(int(reply["id"]), run, like)
        return found if lazy else self._arrive(found, like)

    def _asked_to_run(self, packed: Header, data: Tensor, how: How, like: Run | None) -> Header:
        asked = {"ask": "run", "call": packed, "how": asdict(how), "like": _described(like)}
        return self._ask(asked, data)

    def _compare_inputs(self, call: Call, like: Run) -> None:
        """Small inputs on a device are fetched behind the call, and compared here.

        Raises:
            Raised: one is another, which the original leaves alone.
        """
        given = call.tensors()
        # sparse ones, which have no nbytes, are fetched dense
        if sum(t.numel() * t.element_size() for t in given) > _FETCHED_BACK_BYTES:
            return
        reply = self._ask({"ask": "inputs"})
        leaves = self._parsed(lambda: self._input_leaves(reply))
        for position, (leaf, t) in enumerate(zip(leaves, given, strict=False)):
            sent = as_dense(t.detach())
            if position not in like.changed_inputs and not same_bits(leaf[()], sent):
                raise Raised(f"ModelNew {WRITES.format(position=position)}", overwrote=True)

    def _input_leaves(self, reply: Header) -> list[RemoteLeaf]:
        handle = ResultHandle(self, int(reply["id"]))
        described = enumerate(reply["leaves"])
        return [self._leaf(n, data, int(reply["id"]), handle) for n, data in described]

    def overwrite(self, number: int) -> None:
        """Changes each element of an input of the last call; done twice, it is as before."""
        if self._device.type == "cpu":
            self._inputs.overwrite(number)
        else:
            self._ask({"ask": "overwrite", "number": number})

    def gradients(
        self, calls: Sequence[Call], grad_outputs: GradOutputs, seed: int, how: Backward, like: Run
    ) -> Run:
        call = Call(([(each.args, each.kwargs) for each in calls], grad_outputs), {})
        asked = {"ask": "gradients", "seed": seed, "how": asdict(how), "like": _described(like)}
        if self._device.type != "cpu":
            packed, data = pack_call(call)
            return self._run_of(self._ask({**asked, "call": packed}, data), like, lazy=False)
        placed = self._inputs.hold(call)
        try:
            reply = self._ask({**asked, "call": placed.header}, placed.text)
            run, count = self._lazy_run_of(reply), len(tensors(grad_outputs))
            found = self._inputs.with_grad_outputs(int(reply["id"]), run, placed, count)
        except Exception:
            self._inputs.release(placed)
            raise
        return self._arrive(found, like)

    def launches(self, call: Call) -> dict[str, int]:
        packed, data = pack_call(call)
        found = self._ask({"ask": "launches", "call": packed}, data)["calls"]
        return {str(name): int(count) for name, count in dict(found).items()}

    def time_kernels(self, copy_gbps: float, num_runs: int | None) -> tuple[KernelTiming, ...]:
        asked = {"ask": "kernels", "copy_gbps": copy_gbps, "num_runs": num_runs}
        return tuple(from_plain(KernelTiming, row) for row in self._ask(asked)["rows"])

    @property
    def timed(self) -> RemoteBlocks:
        """Blocks of timed calls."""
        return RemoteBlocks(self.pid, self.pids, self._ask, self._lazy_run_of, self._nonsense)

    @property
    def answer(self) -> Callable[[], None] | None:
        """Has the witness answer; None where there is none."""
        return self._witness.answer if self._witness else None

    def busy(self) -> str | None:
        """What the process does although nothing is asked of it, by its own processor time.

        Of its work on a device it says itself.
        """
        left = self._ask({"ask": "busy"})["busy"]
        if left is not None:
            return str(left)[:300]
        return idle_clause(self.pid, self._device.type == "cpu")

    def fetch(self, number: int, leaf: int, index: list[Any], count: int, dtype: Any) -> Tensor:
        """Elements of a result that the process holds, in row-major order, on the CPU."""
        self._send({"ask": "fetch", "id": number, "leaf": leaf, "index": index})
        return self._payload(self._reply(), count, dtype)

    def read(self, place: Place, shape: tuple[int, ...], dtype: Any) -> Tensor | None:
        """Elements of a result, out of the memory of the process; None where that cannot be."""
        extent = extent_bytes(shape, place.strides, dtype.itemsize)
        if self._memory is None or extent is None:
            return None
        try:
            found = self._memory.read(place.address, extent)
        except (OSError, OverflowError) as error:
            raise CandidateError("ModelNew returns a tensor without memory of its own") from error
        return elements(found, place, shape, dtype)

    def drop(self, number: int) -> None:
        """A result that nobody here looks at any more."""
        self._inputs.drop(number)
        self._dropped.append(number)

    def close(self, wait: bool = True) -> None:
        if self._witness:
            self._witness.close(wait)
        self._connection.close(wait)

    def _ask(self, header: Header, data: Tensor | None = None) -> Header:
        self._send(header, data)
        return self._bare_reply()

    def _bare_reply(self) -> Header:
        """The next reply, which brings no bytes."""
        reply, num_bytes = self._reply()
        if num_bytes:
            self._nonsense()
        return reply

    def _send(self, header: Header, data: Tensor | None = None) -> None:
        dropped, self._dropped = self._dropped, []
        self._wire.send({**header, "dropped": dropped}, data)

    def _reply(self) -> tuple[Header, int]:
        try:
            reply, num_bytes = self._wire.receive()
            if "raised" in reply:
                raised = {str(k): v for k, v in reply["raised"].items()}
                raise Raised(str(raised.pop("sentence"))[:2000], **raised)
            if "refused" in reply:
                found: OpweldError = from_data(reply["refused"])
                raise found
            if "failed" in reply:
                raise CandidateError(str(reply["failed"])[:4000])
        except (BadFrame, KeyError, TypeError, ValueError, AttributeError) as error:
            self._nonsense(error)
        return reply, num_bytes

    def _payload(self, reply: tuple[Header, int], count: int, dtype: Any) -> Tensor:
        if reply[1] != count * dtype.itemsize:
            self._nonsense()
        return self._wire.receive_bytes(reply[1]).view(dtype)

    def _nonsense(self, error: Exception | None = None) -> NoReturn:
        detail = f": {error}" if error else ""
        self._connection.close()
        raise CandidateEnded(
            f"ModelNew's process gives answers that are none ({self._connection.step}){detail}"
        ) from error

    def _state_leaves(self, reply: Header) -> list[tuple[str, RemoteLeaf]]:
        try:
            names = [str(name) for name in reply["names"]]
            leaves = [self._leaf(n, data, reply["id"]) for n, data in enumerate(reply["leaves"])]
            return list(zip(names, leaves, strict=True))
        except (KeyError, TypeError, ValueError, BadFrame, RuntimeError) as error:
            self._nonsense(error)

    def _run_of(self, reply: Header, like: Run | None, lazy: bool) -> Run:
        try:
            number, found = int(reply["id"]), reply["run"]
            handle = ResultHandle(self, number)
            leaves = enumerate(found["leaves"])
            described = [self._described_leaf(n, leaf, number, handle) for n, leaf in leaves]
            run = Run(
                names=tuple(map(str, found["names"])),
                leaves=described,
                nesting=[(str(path), str(kind)) for path, kind in found["nesting"]],
                changed_inputs=tuple(map(int, found["changed_inputs"])),
                changed_state=tuple(map(str, found["changed_state"])),
                draws_random=bool(found["draws_random"]),
                kinds=tuple(map(str, found["kinds"])),
                strides=tuple(tuple(map(int, s)) for s in found["strides"]),
                aliases=tuple(map(str, found["aliases"])),
                random=tuple(map(str, found["random"])),
            )
        except (KeyError, TypeError, ValueError, BadFrame, RuntimeError) as error:
            self._nonsense(error)
        return run if lazy else self._arrive(run, like)

    def _arrive(self, run: Run, like: Run | None) -> Run:
        """The run with those of its tensors here that are no larger than expected."""
        run.leaves[:] = [self._arrived(leaf, n, like) for n, leaf in enumerate(run.leaves)]
        return run

    def _lazy_run_of(self, reply: Header) -> Run:
        return self._run_of(reply, None, lazy=True)

    def _described_leaf(
        self, position: int, data: Header, number: int, handle: ResultHandle
    ) -> Any:
        return self._leaf(position, data, number, handle) if "shape" in data else scalar_of(data)

    def _leaf(
        self, position: int, data: Header, number: int, handle: ResultHandle | None = None
    ) -> RemoteLeaf:
        layout = getattr(torch, str(data["layout"]).removeprefix("torch."))
        if not isinstance(layout, torch.layout):
            raise BadFrame("no layout")
        return RemoteLeaf(
            self,
            number,
            position,
            torch.Size(map(int, data["shape"])),
            dtype_named(data["dtype"]),
            torch.device(data["device"]),
            layout,
            handle,
            place=_place_of(data),
        )

    def _arrived(self, leaf: Any, position: int, like: Run | None) -> Any:
        """The tensor itself where it is what was asked for and small beside the free memory.

        A sparse one is fetched in pieces, which are dense.
        """
        if not isinstance(leaf, RemoteLeaf) or leaf.layout is not torch.strided:
            return leaf
        if like is not None and not _alike(leaf, like, position):
            return leaf  # it will be refused for its shape or dtype: nothing need be moved
        if leaf.nbytes > self._whole_bytes():
            return leaf
        return self._whole(leaf)

    def _whole_bytes(self) -> int:
        """Outputs up to this size are fetched at once; the environment may set it."""
        given = os.environ.get(WHOLE_BYTES)
        return int(given) if given else available_bytes(self._device) // _WHOLE_SHARE

    def _whole(self, leaf: RemoteLeaf) -> Tensor:
        return leaf[()]


def _place_of(data: Header) -> Place | None:
    """Where it says that it lies; an answer that is no place raises as any nonsense does."""
    if "place" not in data:
        return None
    found = data["place"]
    strides = tuple(map(int, found["strides"]))
    if len(strides) != len(data["shape"]) or min(strides, default=0) < 0:
        raise BadFrame("strides that are none")
    return Place(int(found["address"]), strides, bool(found["conj"]), bool(found["neg"]))


def _alike(leaf: RemoteLeaf, like: Run, position: int) -> bool:
    if position >= len(like.leaves):
        return False
    other = like.leaves[position]
    return isinstance(other, Tensor) and _agree(leaf, other, "shape", "dtype", "device", "layout")


def _agree(leaf: RemoteLeaf, other: Tensor, *attributes: str) -> bool:
    return all(getattr(other, name) == getattr(leaf, name) for name in attributes)


def _described(like: Run | None) -> Header | None:
    """What the candidate may know of the original's run: which leaves there are, none of them."""
    return None if like is None else candidate.described(like)


def scalar_of(data: Header) -> Any:
    """A leaf that is no tensor.

    Raises:
        BadFrame: of no known kind.
    """
    readers: dict[str, Callable[[str], Any]] = {
        "float": float,
        "int": int,
        "bool": lambda text: text == "True",
        "str": str,
        "NoneType": lambda _: None,
    }
    if data["kind"] not in readers:
        raise BadFrame(f"a leaf of kind {str(data['kind'])[:40]}")
    return readers[data["kind"]](str(data["text"]))
