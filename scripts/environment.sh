# Sourced by demo.sh and test.sh: an environment of Python with torch, the active one or .venv.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if python3 -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
    # Beside what the machine has: a torch that is there need not be had again.
    [[ -x .venv/bin/python3 ]] || python3 -m venv --system-site-packages .venv
    . .venv/bin/activate
fi

# Installs opweld with the named extra, if any; a torch that is there and new enough stays.
install_opweld() {
    local pinned=()
    python3 -c 'import torch; assert torch.__version__ >= (2, 11)' 2> /dev/null ||
        pinned=(-c constraints.txt)
    python3 -m pip install "${pinned[@]}" ".${1:+[$1]}"
}
