"""The candidate's process: it holds ModelNew and answers what the referee asks.

It is forked before any file or seed is known, keeps nothing open but its socket and its output, and
sends back only JSON and the bytes of results. Code of a candidate can change all of this module:
what it then sends is compared all the same.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

from opweld.errors import OpweldError
from opweld.judge.load import Call, CandidateError, brief
from opweld.judge.numerics.differentiate import Backward
from opweld.judge.process.environment import is_spoilt
from opweld.judge.process.processes import end_with_parent, say_where, start_anew
from opweld.judge.process.side import Files, How, Raised, Side
from opweld.judge.process.wire import Header, Wire, bytes_of, dtype_named, name_of, unpack_call
from opweld.judge.values import from_plain, to_plain
from opweld.judge.verify.run import Run
from opweld.sandbox import Policy, enter, within

_CRASHED = 70  # EX_SOFTWARE
_MAX_DESCRIPTORS = 65536


def main(
    sock: socket.socket, out: int, err: int, policy: Policy, judges: tuple[int, ...]
) -> NoReturn:
    """Become the candidate's process, right after the fork, and serve until the socket closes.

    It is confined beyond the `policy` of the process that it was forked from, and sends no signals
    to the `judges`.
    """
    status = _CRASHED
    try:
        descriptor = _leave_everything(sock, out, err)
        enter(within(policy), protected=judges)
        if is_spoilt():
            start_anew("opweld.judge.process.candidate", descriptor)
        serve(descriptor)
        status = 0
    finally:
        os._exit(status)


def serve(descriptor: int) -> None:
    """Answer on this socket until it closes."""
    sys.dont_write_bytecode = True
    sys.argv = ["candidate"]
    say_where()
    Server(socket.socket(fileno=descriptor)).serve()


@dataclass(slots=True)
class Server:
    """Answers one request after the other."""

    sock: socket.socket
    side: Side = field(default_factory=Side)
    results: dict[int, list[Any]] = field(default_factory=dict)
    num_results: int = 0

    def serve(self) -> None:
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
            return _ANSWERS[header["ask"]](self, header, data)
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

    def load(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.load(Files(**header["files"]))
        return {}, None

    def build(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.build(header["seed"])
        return {}, None

    def state(self, header: Header, data: Tensor) -> tuple[Header, None]:
        state = self.side.state()
        leaves = list(state.values())
        described = [leaf_header(leaf) for leaf in leaves]
        return {"names": list(state), "leaves": described, "id": self._keep(leaves)}, None

    def load_state(self, header: Header, data: Tensor) -> tuple[Header, None]:
        (state,) = unpack_call(header["call"], data, self.side.device).args
        self.side.load_state(state)
        return {}, None

    def change_weights(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.change_weights(header["seed"], header["way"])
        return {}, None

    def signature(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"functions": to_plain(self.side.signature())}, None

    def train(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.train(header["mode"])
        return {}, None

    def convert(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.convert(header["dtype"])
        return {}, None

    def settings(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"changed": self.side.settings_changed()}, None

    def patched(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"names": self.side.patched()}, None

    def busy(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"busy": self.side.busy()}, None

    def run(self, header: Header, data: Tensor) -> tuple[Header, None]:
        call = self._call(header, data)
        found = self.side.run(call, How(**header["how"]), like_of(header["like"]))
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def gradients(self, header: Header, data: Tensor) -> tuple[Header, None]:
        given, grad_outputs = self._call(header, data).args
        how, like = from_plain(Backward, header["how"]), like_of(header["like"])
        assert like is not None
        found = self.side.gradients(
            [Call(*each) for each in given], grad_outputs, header["seed"], how, like
        )
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def launches(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"calls": self.side.launches(self._call(header, data))}, None

    def kernels(self, header: Header, data: Tensor) -> tuple[Header, None]:
        rows = self.side.time_kernels(header["copy_gbps"], header["num_runs"])
        return {"rows": [to_plain(row) for row in rows]}, None

    def prepare(self, header: Header, data: Tensor) -> tuple[Header, None]:
        calls = unpack_call(header["calls"], data, self.side.device).args
        self.side.prepare([Call(*entry) for entry in calls])
        return {}, None

    def arm(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.arm([(position, offset) for position, offset in header["order"]])
        return {}, None

    def block(self, header: Header, data: Tensor) -> tuple[Header, None]:
        return {"ms": self.side.block(header["run"], header["keep"])}, None

    def result(self, header: Header, data: Tensor) -> tuple[Header, None]:
        found = self.side.result(header["number"])
        return {"run": described(found), "id": self._keep(found.leaves)}, None

    def release(self, header: Header, data: Tensor) -> tuple[Header, None]:
        self.side.release()
        return {}, None

    def fetch(self, header: Header, data: Tensor) -> tuple[Header, Tensor]:
        leaf = self.results[header["id"]][header["leaf"]].detach()
        leaf = leaf if leaf.layout is torch.strided else leaf.to_dense()
        index = tuple(step if isinstance(step, int) else slice(*step) for step in header["index"])
        return {}, bytes_of(leaf[index])

    def _call(self, header: Header, data: Tensor) -> Call:
        return unpack_call(header["call"], data, self.side.device)

    def _keep(self, leaves: list[Any]) -> int:
        self.num_results += 1
        self.results[self.num_results] = leaves
        return self.num_results

    def _send_all(self, data: memoryview) -> None:
        self.sock.sendall(data)

    def _receive_all(self, buffer: memoryview) -> None:
        while buffer:
            count = self.sock.recv_into(buffer)
            if count == 0:
                raise EOFError
            buffer = buffer[count:]


_ANSWERS: dict[str, Callable[[Server, Header, Tensor], tuple[Header, Tensor | None]]] = {
    name: getattr(Server, name)
    for name in (
        "load",
        "build",
        "state",
        "load_state",
        "change_weights",
        "signature",
        "train",
        "convert",
        "settings",
        "patched",
        "busy",
        "run",
        "gradients",
        "launches",
        "kernels",
        "prepare",
        "arm",
        "block",
        "result",
        "release",
        "fetch",
    )
}


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
    return {
        "shape": list(leaf.shape),
        "dtype": name_of(leaf.dtype),
        "device": str(leaf.device),
        "layout": str(leaf.layout),
    }


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


def _leave_everything(sock: socket.socket, out: int, err: int) -> int:
    """A session of its own, output into its own pipes, no other file of the judge's open.

    The result is the number that the socket has then.
    """
    os.setsid()
    end_with_parent()
    kept = (os.open(os.devnull, os.O_RDONLY), out, err, sock.detach())
    # first out of the way of the numbers that they are to have
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(kept)) for descriptor in kept]
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    os.closerange(len(kept), _MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # where memory runs out, this process goes first
    return len(kept) - 1


if __name__ == "__main__":
    serve(int(sys.argv[1]))
