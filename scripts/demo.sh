#!/usr/bin/env bash
# Installs opweld and optimises examples/gelu.py for what this machine has: out/gelu_new.py.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

install_opweld
# On a CPU the example's own 8192 rows would take a minute longer.
on_cpu=$(python3 -c 'import torch; print("" if torch.cuda.is_available() else "--batch 1024")')
python3 -m opweld optimize examples/gelu.py -o out/gelu_new.py $on_cpu
