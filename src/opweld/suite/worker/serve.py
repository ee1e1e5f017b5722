"""The process that does the work of one slot: `python -m opweld.suite.worker.serve ANSWERS FOLDER`.

Each line of the standard input is a request: the device's lock is to be taken or given back, or a
task to be done. Each line that it writes to the descriptor ANSWERS is a message: a mark by which
what it started can be found, or an answer. When the standard input ends, the one that started it is
gone, and so is everything here.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from opweld.judge.values import from_plain, to_plain
from opweld.suite.values import ERROR, Answer, Gpu, Task
from opweld.suite.worker import locks
from opweld.suite.worker.perform import Bench, MachineFault, perform

LOCK, UNLOCK, TASK = "lock", "unlock", "task"
_POLL_S = 0.05
# What is left of the ending of a worker whose supervisor is gone, before it is cut short.
_GRACE_S = 5.0


def main(answers: int, folder: Path) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the driver decides
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with open(answers, "w", encoding="utf-8") as out:

        def tell(kind: str, value: Any) -> None:
            out.write(json.dumps({"kind": kind, "value": value}) + "\n")
            out.flush()

        given = json.loads(sys.stdin.readline() or "null")
        bench = Bench(
            folder / "builds", given and from_plain(Gpu, given), lambda m: tell("mark", m)
        )
        threading.Thread(target=_read, args=(lines,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(bench):
            _serve(lines, bench, folder, tell)
    shutil.rmtree(folder, ignore_errors=True)


def _serve(
    lines: queue.SimpleQueue[str], bench: Bench, folder: Path, tell: Callable[[str, Any], None]
) -> None:
    lock = None
    while line := lines.get():
        request, value = json.loads(line)
        if request == LOCK:
            lock = locks.lock_of(value["device"], Path(value["folder"]))
            lock.acquire(poll_interval=_POLL_S)
            tell(LOCK, None)
        elif request == UNLOCK:
            if lock is not None:
                lock.release()
        else:
            tell(*_answered(from_plain(Task, value), bench))
            for used in (bench.builds, *(folder / "caches").iterdir()):
                _clear(used)


def _answered(task: Task, bench: Bench) -> tuple[str, Any]:
    try:
        return "answer", to_plain(perform(task, bench))
    except MachineFault as fault:
        return "fault", {"fault": fault.fault, "detail": fault.detail}
    except Exception as error:  # a bug of ours, which must not end the suite
        traceback.print_exception(error)
        reason = f"opweld itself failed with {type(error).__name__}: {error}"
        return "answer", to_plain(Answer(ERROR, type(error).__name__, reason))


def _read(lines: queue.SimpleQueue[str]) -> None:
    """Tasks, and at the end of the input the end of this process, whatever it is doing."""
    for line in sys.stdin:
        lines.put(line)
    lines.put("")
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    os._exit(1)


def _clear(folder: Path) -> None:
    """What one unit has left there is nothing to the next. The folder itself stays: a sandbox that
    is warm lets its processes write to this one, not to another of its name.
    """
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: the ending is not to be interrupted
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
