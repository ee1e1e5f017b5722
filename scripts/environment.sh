# Sourced by demo.sh and test.sh: an environment of Python with torch, the active one or .venv.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# PyTorch's builds of extensions do not quote its own folder for the linker: in a path with a space
# .venv is a link to an environment elsewhere.
make_environment() {
    local place=$PWD/.venv
    if [[ $place == *[[:space:]]* ]]; then
        place=${XDG_CACHE_HOME:-$HOME/.cache}/opweld/venv-$(cksum <<< "$PWD" | cut -d ' ' -f 1)
        ln -sfn "$place" .venv
    fi
    # Beside what the machine has: a torch that is there need not be had again.
    python3 -m venv --system-site-packages "$place"
}

if python3 -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
    # The script that activates is made last: without it an earlier run was interrupted.
    [[ -e .venv/bin/activate ]] || make_environment
    # Not by that script, which names the place that the clone had when .venv was made.
    PATH=$(cd .venv && pwd -P)/bin:$PATH
    export PATH
fi

# Installs opweld with the named extra, if any; a torch that is there and new enough stays.
install_opweld() {
    local pinned=()
    python3 -c 'import torch; assert torch.__version__ >= (2, 11)' 2> /dev/null ||
        pinned=(-c constraints.txt)
    python3 -m pip install "${pinned[@]}" ".${1:+[$1]}"
}
