"""Which tests a commit runs a share of: functions whose cases take a second or more in all, on two
cores, but for the unit tier. Those of one file are in one of sixteen shares, which take about as
long as each other and are all of them; every other test always runs.

    python -m pytest --share 40         the ninth share, as 40 mod 16 is 8, and what always runs
    python -m tests.sampled LOG.xml...  writes sampled.txt anew: from the log of a whole run, and
                                        those of shares, where others have to make what is in common
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from tests.tiers import is_unit

SHARES, LEAST_S = 16, 1.0
ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("sampled.txt")
HEADING = """\
# Functions of tests whose cases take a second or more in all, behind the share that runs them.
"""


@cache
def sampled() -> dict[str, int]:
    """The shares by functions, which are named by path and name."""
    lines = LIST.read_text("utf-8").splitlines()
    pairs = (line.split(" ", 1) for line in lines if not line.startswith("#"))
    return {function: int(share) for share, function in pairs}


def is_left_out(node_id: str, share: int) -> bool:
    """Whether a run of the share is without the test."""
    return sampled().get(function_of(node_id), share % SHARES) != share % SHARES


def function_of(node_id: str) -> str:
    return node_id.partition("[")[0]


def node_id_of(class_name: str, name: str) -> str:
    """The node id of a case in a log: pytest joins path and classes with dots there."""
    parts = class_name.split(".")
    for end in range(len(parts), 0, -1):
        if Path(ROOT, *parts[:end]).with_suffix(".py").exists():
            return "::".join(["/".join(parts[:end]) + ".py", *parts[end:], name])
    raise SystemExit(f"{class_name}: no such file of tests; is the log of these tests?")


def main(*logs: Path) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    for took in map(seconds_in, logs):
        for function in took:
            seconds[function] = max(seconds[function], took[function])
    long = {name: s for name, s in seconds.items() if s >= LEAST_S and not _is_unit(name)}
    shares = shared_out(long)
    LIST.write_text(HEADING + "".join(f"{shares[name]} {name}\n" for name in sorted(long)), "utf-8")


def _is_unit(function: str) -> bool:
    return is_unit(ROOT / function.partition("::")[0])


def seconds_in(log: Path) -> dict[str, float]:
    """Those of all cases of each function together."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(log).getroot().iter("testcase"):
        function = function_of(node_id_of(case.attrib["classname"], case.attrib["name"]))
        seconds[function] += float(case.attrib["time"])
    return seconds


def shared_out(seconds: dict[str, float]) -> dict[str, int]:
    """The longest file first, each to the share that is the shortest then: a file's fixtures are
    made once.
    """
    files: defaultdict[str, float] = defaultdict(float)
    for function, took in seconds.items():
        files[function.partition("::")[0]] += took
    full, share_of = [0.0] * SHARES, {}
    for file in sorted(files, key=lambda name: (-files[name], name)):
        share_of[file] = full.index(min(full))
        full[share_of[file]] += files[file]
    return {function: share_of[function.partition("::")[0]] for function in seconds}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*map(Path, sys.argv[1:]))
