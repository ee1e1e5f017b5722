#!/usr/bin/env bash
# Installs opweld and runs its tests, but for the slow ones and those that lack a GPU or a compiler;
# of those that take long a share, another for each commit (tests/sampled.py).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

install_opweld test
commit=$(git rev-parse --short=7 HEAD 2> /dev/null || echo 0)
python3 -m pytest -n 2 --dist worksteal --share $((0x$commit))
