"""Builds the kernels of an emitted file, by importing it in a child process.

The emitted file itself never fails for want of a kernel: it warns and runs the original. Whoever
asked for kernels wants to know why there are none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from opweld.errors import BuildFailed, UnsupportedTarget, Where
from opweld.model_file import folder_of, import_file, main_file
from opweld.options import Options
from opweld.process.child import run_child
from opweld.process.lifetime import exit_without_teardown
from opweld.process.worker import child_environment

COMMAND = (sys.executable, "-P", "-m", "opweld.process.builder")
# What the emitted file says in its warning, before the reason.
NO_KERNELS = "ModelNew runs the original, not its kernels: "
NO_DEVICE = "no device here can run them"


def build_in_child(
    new: Path, model: Path, target: str, options: Options, command: Sequence[str] = COMMAND
) -> float:
    """Imports the emitted file `new`, made for `model`; returns the seconds that it took.

    Raises:
        UnsupportedTarget: this machine has no device for `target`.
        BuildFailed: the compiler refused, or the import failed or did not return.
    """
    with tempfile.TemporaryDirectory(prefix="opweld-") as folder:
        answer = Path(folder, "answer.json")
        finished = run_child(
            [*command, str(new), str(answer)],
            time_limit_s=options.time_limit_s,
            environ=child_environment(),
            on_output=sys.stderr.buffer.write if options.debug else None,
            sandbox=options.chosen_sandbox,
            writable=(folder,),
        )
        if finished.timed_out or finished.status != 0 or not answer.exists():
            said = f": {finished.last_line[:300]}" if finished.last_line else ""
            raise BuildFailed(
                f"the process that builds the kernels {finished.ending()}{said}",
                where=Where(str(model)),
                next_step="see what is missing with `opweld doctor`",
            )
        reply = json.loads(answer.read_text("utf-8"))
    if reply["problem"]:
        raise refusal(reply["problem"], model, target)
    return float(reply["seconds"])


def refusal(problem: str, model: Path, target: str) -> BuildFailed | UnsupportedTarget:
    """The error for what an emitted file said when it had no kernels."""
    if problem == NO_DEVICE:
        return UnsupportedTarget(
            f"this machine has no device that runs kernels for {target}",
            next_step="write the file without judging it by --no-check, or use --target auto",
        )
    return BuildFailed(
        f"the kernels cannot be built: {problem}",
        where=Where(str(model)),
        next_step="see what is missing with `opweld doctor`",
    )


def main() -> None:
    """`NEW ANSWER [FOLDER...]`: the file or package can import its neighbours, as a script can, and
    what stands in the folders.
    """
    new, answer, folders = main_file(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3:]
    sys.path[:0] = [*folders, str(folder_of(new.resolve()))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        import_file(new, "opweld_built")
        seconds = time.perf_counter() - start
    said = [str(each.message).partition(NO_KERNELS)[2] for each in caught]
    problem = next((reason for reason in said if reason), None)
    answer.write_text(json.dumps({"seconds": seconds, "problem": problem}), "utf-8")


if __name__ == "__main__":
    main()
    exit_without_teardown()
