"""Which tests a commit runs a share of: those of functions whose cases take a second or more in
all, on two cores. A sixteenth of them runs, case by case, so that nearly every function has some in
each run, and sixteen shares are all of them; every other test always runs.

    python -m pytest --share 3          the fourth of the shares 0 to 15, beside what always runs
    python tests/sampled.py out/all.xml writes sampled.txt anew from the log of a whole run
"""

from __future__ import annotations

import sys
import zlib
from collections import defaultdict
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

SHARES, LEAST_S = 16, 1.0
ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("sampled.txt")
HEADING = """\
# Functions of tests whose cases take a second or more in all: a commit runs a share of them.
"""


@cache
def sampled() -> frozenset[str]:
    """The functions, by path and name."""
    lines = LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def is_left_out(node_id: str, share: int) -> bool:
    """Whether a run of the share 0 <= share < SHARES is without the test."""
    is_sampled = function_of(node_id) in sampled()
    return is_sampled and zlib.crc32(node_id.encode()) % SHARES != share


def function_of(node_id: str) -> str:
    return node_id.partition("[")[0]


def node_id_of(class_name: str, name: str) -> str:
    """The node id of a case in a log: pytest joins path and classes with dots there."""
    parts = class_name.split(".")
    for end in range(len(parts), 0, -1):
        if Path(ROOT, *parts[:end]).with_suffix(".py").exists():
            return "::".join(["/".join(parts[:end]) + ".py", *parts[end:], name])
    raise SystemExit(f"{class_name}: no such file of tests; is the log of this tree?")


def main(log: Path) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(log).getroot().iter("testcase"):
        function = function_of(node_id_of(case.attrib["classname"], case.attrib["name"]))
        seconds[function] += float(case.attrib["time"])
    long = sorted(name for name, took in seconds.items() if took >= LEAST_S)
    LIST.write_text(HEADING + "".join(f"{name}\n" for name in long), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
