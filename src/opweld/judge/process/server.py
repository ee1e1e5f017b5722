"""The warm process: `python -m opweld.judge.process.server CONTROL ALIVE`.

It has torch imported and CUDA untouched, and forks a referee for each request, which then forks the
candidate. CONTROL is a socket: a request is four descriptors (the request's JSON to read, messages,
stdout, stderr), answered by the referee's process id and, when that has ended, by its exit status.
When ALIVE closes, the parent is gone and everything here ends. The request is read only when the
candidate has been forked: nothing of it is in the candidate's memory.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch

from opweld.errors import InternalError, ModelOutOfMemory, OpweldError
from opweld.judge.load import brief, is_out_of_memory
from opweld.judge.process.candidate import FIXED
from opweld.judge.process.connection import Connection, start_candidate
from opweld.judge.process.environment import is_spoilt
from opweld.judge.process.exit_status import Limits
from opweld.judge.process.memory import available_bytes
from opweld.judge.process.processes import (
    MARK,
    adopt_orphans,
    descendants,
    end_with_parent,
    kill,
    marked,
    say_where,
    start_anew,
    take_arguments,
)
from opweld.judge.process.remote import RemoteSide
from opweld.judge.session import Request, judge
from opweld.judge.values import Event, Judgement, Settings, from_plain, to_plain
from opweld.judge.witness.objects import Recorded, recorded
from opweld.judge.witness.watch import Witness
from opweld.sandbox import Policy, enter, from_json, remove_content

_CRASHED = 70  # EX_SOFTWARE
_REFEREE = "referee"
CPU = torch.device("cpu")
# What the candidate may take of the memory that is free when it starts.
_MEMORY_SHARE = 0.8
_TICK_S, _LAST_S = 0.005, 2.0


class PipeChannel:
    """Sends what happens to the parent, a line of JSON each."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def phase(self, who: str, what: str) -> None:
        self.send("phase", {"who": who, "what": what})

    def event(self, event: Event) -> None:
        self.send("event", to_plain(event))

    def partial(self, judgement: Judgement) -> None:
        self.send("partial", to_plain(judgement))

    def send(self, kind: str, value: Any) -> None:
        line = json.dumps({"kind": kind, "value": value}).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def main(control: int, alive: int) -> None:
    """Serve until the control socket closes; when `alive` closes, end everything at once.

    The policy of its sandbox is read from the standard input.
    """
    end_with_parent()
    policy = from_json(sys.stdin.read())
    enter(policy, protected=(os.getppid(),))
    adopt_orphans()
    sys.dont_write_bytecode = True
    take_arguments(sys.executable, "main.py")
    # What forks here has no work in any other thread: those that libraries keep are idle.
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    before = recorded(FIXED)
    sock = socket.socket(fileno=control)
    while True:
        _wait_for(sock.fileno(), alive)
        word, descriptors, _, _ = socket.recv_fds(sock, 1, 4)
        if not word:
            return
        pid = os.fork()
        if pid == 0:
            sock.close()
            os.close(alive)
            _referee(before, policy, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _tell(sock, pid=pid)
        _tell(sock, status=_ended(pid, alive))
        remove_content(policy)


def _ended(pid: int, alive: int) -> int:
    """The exit status of the referee, when all that it started has ended too."""
    handle = os.pidfd_open(pid)
    _wait_for(handle, alive)
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    _end_orphans()
    return os.waitstatus_to_exitcode(status)


def _wait_for(descriptor: int, alive: int) -> None:
    """Until the descriptor can be read; without a parent there is nothing to wait for."""
    ready, _, _ = select.select([descriptor, alive], [], [])
    if alive in ready:
        _end_orphans()
        os._exit(0)


def _tell(sock: socket.socket, **facts: int) -> None:
    sock.sendall(json.dumps(facts).encode() + b"\n")


def _referee(
    before: Recorded | None, policy: Policy, request: int, messages: int, out: int, err: int
) -> NoReturn:
    """Become the referee, in a process that was just forked."""
    status = _CRASHED
    try:
        os.setsid()
        end_with_parent()
        for descriptor, standard in ((out, 1), (err, 2)):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        if is_spoilt():
            module = "opweld.judge.process.server"
            start_anew(module, _REFEREE, request, messages, policy.to_json())
        _become_referee(before, policy, request, messages)
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _become_referee(before: Recorded | None, policy: Policy, request: int, messages: int) -> None:
    """A witness first, and a candidate, then the request."""
    witness = start_candidate(policy)
    connection = start_candidate(policy, protected=(witness.pid,))
    say_where()
    sys.argv = ["referee"]
    sys.dont_write_bytecode = True
    with open(request, encoding="utf-8") as file:
        data = json.load(file)
    side = RemoteSide(connection, Witness(witness, before))
    _conduct(data, connection, side, PipeChannel(messages))


def _conduct(
    data: dict[str, Any], connection: Connection, side: RemoteSide, channel: PipeChannel
) -> None:
    """Judge, and send the judgement or the error."""
    settings = from_plain(Settings, data["settings"])
    files = data["model_path"], data["new_path"]
    request = Request(*files, settings, data["seed"], data["builds"])
    connection.limit(_limits(settings), tuple(map(Path, (request.new_path, request.model_path))))
    try:
        answer = ("done", to_plain(judge(request, channel, side)))
    except OpweldError as error:
        answer = ("error", error.to_data())
    except Exception as error:
        answer = ("error", _own_failure(error).to_data())
    side.close(wait=False)  # a process on a GPU takes its time to end, and so does this one
    channel.send(*answer)


def _limits(settings: Settings) -> Limits:
    memory = settings.memory_limit_bytes or int(_MEMORY_SHARE * available_bytes(CPU))
    return Limits(settings.time_limit_s, settings.max_output_bytes, memory)


def _own_failure(error: Exception) -> OpweldError:
    """What went wrong in the judge itself: memory that it needs beside the models, or a bug."""
    if is_out_of_memory(error):
        return ModelOutOfMemory(
            f"the judge ran out of memory: {brief(error)}", next_step="try a smaller --batch"
        )
    traceback.print_exception(error)
    return InternalError(f"the judge failed: {brief(error)}", next_step="please report it")


def _end_orphans() -> None:
    """Ends what a referee or a candidate left: it has become a child of this process.

    What lost its mark is found by that, and what lost its parent by the mark.
    """
    for pid in {*marked(os.environ.get(MARK, "")), *descendants(os.getpid())} - {os.getpid()}:
        kill(pid)
    until = time.monotonic() + _LAST_S
    while time.monotonic() < until:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(_TICK_S)


if __name__ == "__main__":
    if sys.argv[1] == _REFEREE:
        _become_referee(None, from_json(sys.argv[4]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
