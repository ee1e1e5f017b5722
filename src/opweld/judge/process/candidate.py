"""The candidate's process: it holds ModelNew and answers what the referee asks.

It is forked before any file or seed is known, keeps nothing open but its socket and its output, and
sends back only JSON and the bytes of results. Code of a candidate can change all of this module:
what it then sends is compared all the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import resource
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor

from opweld.errors import OpweldError
from opweld.judge.load import (
    Call,
    CandidateError,
    brief,
    build_original,
    import_model_file,
)
from opweld.judge.numerics.differentiate import Backward
from opweld.judge.process.environment import is_spoilt
from opweld.judge.process.processes import (
    DRIVER_CHECK,
    MARK,
    end_with_parent,
    say_where,
    start_anew,
    take_arguments,
)
from opweld.judge.process.protocol import Files, How, Raised
from opweld.judge.process.shared import Mapped
from opweld.judge.process.side import Side
from opweld.judge.process.wire import Header, Wire, bytes_of, dtype_named, name_of, unpack_call
from opweld.judge.sparse import as_dense
from opweld.judge.values import to_plain
from opweld.judge.verify.aliases import is_dense
from opweld.judge.verify.run import Run
from opweld.judge.witness.integrity import Integrity
from opweld.judge.witness.objects import Fixed
from opweld.judge.witness.process_state import process_state
from opweld.sandbox import Policy, enter, within

# What a process that runs a file of some user has as its arguments.
_SCRIPT = "main.py"
_CRASHED = 70  # EX_SOFTWARE
_MAX_DESCRIPTORS = 65536


def main(
    sock: socket.socket, memory: int, out: int, err: int, policy: Policy, judges: tuple[int, ...]
) -> NoReturn:
    """Become the candidate's process, right after the fork, and serve until the socket closes.

    `memory` is the descriptor of the memory that inputs are placed in. The process is confined
    beyond the `policy` of the one that it was forked from, and sends no signals to the `judges`.
    """
    status = _CRASHED
    try:
        descriptors = _leave_everything(sock, memory, out, err)
        enter(within(policy), protected=judges)
        if is_spoilt():
            start_anew("opweld.judge.process.candidate", *descriptors)
        serve(*descriptors)
        status = 0
    finally:
        os._exit(status)


def serve(descriptor: int, memory: int) -> None:
    """Answer on this socket until it closes."""
    sys.dont_write_bytecode = True
    take_arguments(sys.executable, _SCRIPT)
    sys.argv, sys.orig_argv = [_SCRIPT], [sys.executable, _SCRIPT]
    say_where()
    SERVER.mapped.descriptor = memory
    SERVER.serve(socket.socket(fileno=descriptor))


@dataclass(slots=True)
class Server:
    """Answers one request after the other."""

    sock: socket.socket | None = None
    mapped: Mapped = field(default_factory=Mapped)
    side: Side = field(default_factory=Side)
    results: dict[int, list[Any]] = field(default_factory=dict)
    before: Integrity | None = None
    modules: list[Any] = field(default_factory=list)
    num_results: int = 0

    def serve(self, sock: socket.socket) -> None:
        self.sock = sock
        wire = Wire(self._send_all, self._receive_all)
        while True:
            try:
                header, num_bytes = wire.receive()
            except EOFError:
                return
            data = wire.receive_bytes(num_bytes)
            for number in header.pop("dropped"):
                self.results.pop(number, None)
            wire.send(*self._answer(header, data))

    def _answer(self, header: Header, data: Tensor) -> tuple[Header, Tensor | None]:
        try:
            return getattr(self, f"ask_{header['ask']}")(header, data)  # type: ignore[no-any-return]
        except Raised as error:
            flags = {name: getattr(error, name) for name in Raised.FLAGS}
            return {"raised": {"sentence": str(error), **flags}}, None
        except CandidateError as error:
            return {"failed": str(error)}, None
        except OpweldError as error:
            return {"refused": error.to_data()}, None
        except Exception as error:
            # a result without data, say, or in a layout that cannot be read
            return {"failed": f"what ModelNew returned cannot be read: {brief(error)}"}, None

    def ask_begin(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.begin(Files(**header["files"]))
        self.modules = forget_the_judge()
        return {"settings": self.side.settings(), "state": process_state()}, None

    def ask_load(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.import_new()
        imported = process_state()
        self.side.build_first()
        return {"states": [imported, process_state()]}, None

    def ask_nothing(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {}, None

    def ask_process_state(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"state": process_state(), "modules": list(sys.modules)}, None

    def ask_import_modules(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.before = self.before or Integrity()
        for name in header["modules"]:
            # what cannot be imported alone was imported by something else before
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        path = Path(header["model_path"])
        module = import_model_file(path, header["function"])
        with contextlib.suppress(Exception):  # it is built in the referee, too, which says so
            build_original(module, path, header["seed"], torch.device("cpu"))
        if "torch._dynamo" in header["modules"]:
            # some of what it replaces it replaces when it first compiles
            torch.compile(torch.nn.Identity(), backend="eager")(torch.zeros(1))
        return {"names": self.before.broken()}, None

    def ask_inputs(self, header: Header, data: Tensor) -> tuple[Header, None]:
        leaves = [t.detach() for t in self.side.last_inputs()]
        return {"leaves": list(map(leaf_header, leaves)), "id": self._keep(leaves)}, None

    def ask_overwrite(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.overwrite(header["number"])
        return {}, None

    def ask_build(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.build(header["seed"])
        return {}, None

    def ask_state(self, header: Header, data: Tensor) -> tuple[Header, None]:
        state = self.side.state()
        leaves = list(state.values())
        described = [leaf_header(leaf) for leaf in leaves]
        return {"names": list(state), "leaves": described, "id": self._keep(leaves)}, None

    def ask_load_state(self, header: Header, data: Tensor) -> tuple[Header, None]:
        (state,) = unpack_call(header["call"], data, self.side.device).args
        self.side.load_state(state)
        return {}, None

    def ask_change_weights(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.change_weights(header["seed"], header["way"])
        return {}, None

    def ask_signature(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"functions": to_plain(self.side.signature())}, None

    def ask_train(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.train(header["mode"])
        return {}, None

    def ask_convert(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.convert(header["dtype"])
        return {}, None

    def ask_settings(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"settings": self.side.settings()}, None

    def ask_patched(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"names": self.side.patched()}, None

    def ask_busy(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"busy": self.side.busy()}, None

    def ask_run(self, header: Header, data: Tensor) -> tuple[Header, None]:
        call = self._call(header, data)
        found = self.side.run(call, How(**header["how"]), like_of(header["like"]))
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def ask_gradients(self, header: Header, data: Tensor) -> tuple[Header, None]:
        given, grad_outputs = self._call(header, data).args
        asked = {**header["how"], "frozen": tuple(header["how"]["frozen"])}
        how, like = Backward(**asked), like_of(header["like"])
        assert like is not None
        found = self.side.gradients(
            [Call(*each) for each in given], grad_outputs, header["seed"], how, like
        )
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def ask_launches(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"calls": self.side.launches(self._call(header, data))}, None

    def ask_kernels(self, header: Header, data: Tensor) -> tuple[Header, None]:
        rows = self.side.time_kernels(header["copy_gbps"], header["num_runs"])
        return {"rows": [to_plain(row) for row in rows]}, None

    def ask_prepare(self, header: Header, data: Tensor) -> tuple[Header, None]:
        calls = unpack_call(header["calls"], data, self.side.device).args
        self.side.prepare([Call(*entry) for entry in calls], header["step"])
        return {}, None

    def ask_arm(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.arm([(position, offset) for position, offset in header["order"]])
        return {}, None

    def ask_block(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"ms": self.side.block(header["run"])}, None

    def ask_result(self, header: Header, data: Tensor) -> tuple[Header, None]:
        found = self.side.result(header["number"])
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def ask_release(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.release()
        return {}, None

    def ask_fetch(self, header: Header, data: Tensor) -> tuple[Header, Tensor]:
        leaf = as_dense(self.results[header["id"]][header["leaf"]].detach())
        index = tuple(step if isinstance(step, int) else slice(*step) for step in header["index"])
        return {}, bytes_of(leaf[index])

    def _call(self, header: Header, data: Tensor) -> Call:
        if "places" in header["call"]:
            return self.mapped.call(header["call"], data)
        return unpack_call(header["call"], data, self.side.device)

    def _keep(self, leaves: list[Any]) -> int:
        self.num_results += 1
        self.results[self.num_results] = leaves
        return self.num_results

    def _send_all(self, data: memoryview) -> None:
        assert self.sock
        self.sock.sendall(data)

    def _receive_all(self, buffer: memoryview) -> None:
        assert self.sock
        while buffer:
            count = self.sock.recv_into(buffer)
            if count == 0:
                raise EOFError
            buffer = buffer[count:]


# Made before the process is forked, so that the referee knows where they lie.
SERVER = Server()
FIXED = (
    Fixed("the judge's server", SERVER, ("side", "mapped")),
    Fixed("the judge's side", SERVER.side, ("_leftovers",)),
    Fixed("the judge's inputs", SERVER.mapped),
    Fixed("what the judge calls with", SERVER.side._leftovers),
)


def described(run: Run) -> Header:
    """A run without its values."""
    return {
        "names": list(run.names),
        "leaves": [leaf_header(leaf) for leaf in run.leaves],
        "nesting": run.nesting,
        "changed_inputs": list(run.changed_inputs),
        "changed_state": list(run.changed_state),
        "draws_random": run.draws_random,
        "kinds": list(run.kinds),
        "strides": [list(strides) for strides in run.strides],
        "aliases": list(run.aliases),
        "random": list(run.random),
    }


def leaf_header(leaf: Any) -> Header:
    """Shape, dtype and place of a tensor; a scalar by its type and text."""
    if not isinstance(leaf, Tensor):
        return {"kind": type(leaf).__name__, "text": leaf if isinstance(leaf, str) else repr(leaf)}
    header: Header = {
        "shape": list(leaf.shape),
        "dtype": name_of(leaf.dtype),
        "device": str(leaf.device),
        "layout": str(leaf.layout),
    }
    if is_dense(leaf) and leaf.device.type == "cpu":
        place = {"address": leaf.data_ptr(), "strides": list(leaf.stride())}
        header["place"] = {**place, "conj": leaf.is_conj(), "neg": leaf.is_neg()}
    return header


def forget_the_judge() -> list[Any]:
    """Takes what is the judge's out of the names that any code can look up; its modules stay alive
    in the result.
    """
    ours = [name for name in sys.modules if f"{name}.".startswith("opweld.")]
    modules = [sys.modules.pop(name) for name in (*ours, "__main__")]
    sys.modules["__main__"] = ModuleType("__main__")
    for name in list(os.environ):
        if name.startswith("OPWELD_") or name in (MARK, DRIVER_CHECK):
            del os.environ[name]
    return modules


def like_of(header: Header | None) -> Run | None:
    """The original's run as far as the candidate is told: no values."""
    if header is None:
        return None
    leaves = [
        torch.empty(leaf["shape"], dtype=dtype_named(leaf["dtype"]), device="meta")
        for leaf in header["leaves"]
        if "shape" in leaf
    ]
    return Run(
        names=tuple(header["names"]),
        leaves=leaves,
        nesting=[(path, kind) for path, kind in header["nesting"]],
        changed_inputs=tuple(header["changed_inputs"]),
        changed_state=tuple(header["changed_state"]),
        draws_random=header["draws_random"],
    )


def _leave_everything(sock: socket.socket, memory: int, out: int, err: int) -> tuple[int, int]:
    """A session of its own, output into its own pipes, no other file of the judge's open.

    The result are the numbers that the socket and the shared memory have then.
    """
    os.setsid()
    end_with_parent()
    kept = (os.open(os.devnull, os.O_RDONLY), out, err, sock.detach(), memory)
    # first out of the way of the numbers that they are to have
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(kept)) for descriptor in kept]
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    os.closerange(len(kept), _MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # where memory runs out, this process goes first
    return len(kept) - 2, len(kept) - 1


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
