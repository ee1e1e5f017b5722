"""The child process: `python -m opweld.judge.child REQUEST MESSAGES ALIVE`.

REQUEST is a JSON file; MESSAGES and ALIVE are inherited file descriptors: one line of JSON for each
message is written to the first, and when the second closes, the parent is gone and the whole
process group ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any

from opweld.errors import InternalError, ModelOutOfMemory, OpweldError
from opweld.judge.load import CandidateError, brief, is_out_of_memory
from opweld.judge.session import Request, failed, judge
from opweld.judge.values import Event, Judgement, Settings, from_plain, to_plain

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def main(request_path: str, messages: int, alive: int) -> None:
    """Judge, and send the judgement or the error."""
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    # the same by the kernel, for code that never lets another thread run
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A crash, and the parent's question where it hangs, are answered on stderr by line.
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    sys.dont_write_bytecode = True
    sys.argv = [request_path]
    channel = PipeChannel(messages)
    with open(request_path, encoding="utf-8") as file:
        data = json.load(file)
    settings = from_plain(Settings, data["settings"])
    request = Request(data["model_path"], data["new_path"], settings, data["seed"])
    try:
        channel.send("done", to_plain(judge(request, channel)))
    except OpweldError as error:
        channel.send("error", error.to_data())
    except CandidateError as error:
        verdict = failed(str(error))
        channel.send("done", to_plain(Judgement(verdict, None, (), None, request.seed)))
    except Exception as error:
        channel.send("error", _own_failure(error).to_data())


def _own_failure(error: Exception) -> OpweldError:
    """What went wrong in the judge itself: memory that it needs beside the models, or a bug."""
    if is_out_of_memory(error):
        return ModelOutOfMemory(
            f"the judge ran out of memory: {brief(error)}", next_step="try a smaller --batch"
        )
    traceback.print_exception(error)
    return InternalError(f"the judge failed: {brief(error)}", next_step="please report it")


def _end_with_parent(alive: int) -> None:
    """Ends the group when the parent is gone, however it went."""
    os.read(alive, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
