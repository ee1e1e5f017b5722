#!/usr/bin/env bash
# Installs opweld and runs its tests, but for the slow ones and those that lack a GPU or a compiler.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

install_opweld test
python3 -m pytest -n 2 --dist worksteal
