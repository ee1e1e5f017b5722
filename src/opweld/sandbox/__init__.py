"""The sandbox: what processes that run model files, candidates and builds may do.

They have no network, write to their own temporary folder and the caches of builds only, can neither
signal nor read other processes, see only listed environment variables, and have limits. Landlock
and a seccomp filter do that without privileges; where the kernel lacks one, that part is missing.
This side imports no torch.
"""

from __future__ import annotations

import contextlib
import getpass
import glob
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from opweld.errors import SandboxMissing
from opweld.sandbox import cuda, landlock, seccomp
from opweld.sandbox.environment import passed_on
from opweld.sandbox.limits import has_gpu_driver, limit_resources
from opweld.sandbox.privileges import drop_capabilities

AUTO, REQUIRED, OFF = SANDBOXES = ("auto", "required", "off")
_DEVICES = (
    "/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
    "/dev/ptmx", "/dev/pts", "/dev/dri", "/dev/dxg", "/dev/kfd", "/dev/nvidia*",
)  # fmt: skip
_SHARED_MEMORY = "/dev/shm"
_MPS_VARIABLE, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
_EXTENSIONS = "TORCH_EXTENSIONS_DIR"
# Where torch.compile, Triton, the driver, torch's own run-time kernels and ccache keep what they
# build, by the variable that says so, with the default.
_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
_CACHES = {
    _INDUCTOR: "{temporary}/torchinductor_{user}",
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "CUDA_CACHE_PATH": "~/.nv/ComputeCache",
    "PYTORCH_KERNEL_CACHE_PATH": "~/.cache/torch/kernels",
    "CCACHE_DIR": "~/.cache/ccache",
}


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What the user chose: one of SANDBOXES, and variables that are passed on beside the listed."""

    mode: str = AUTO
    pass_env: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        """Whether processes are confined: beside a GPU whose driver does not start inside only
        where that is asked for.
        """
        return self.mode == REQUIRED or (self.mode == AUTO and not _keeps_cuda_out())

    def require(self) -> None:
        """That what was asked for is there.

        Raises:
            SandboxMissing: the sandbox is required, and the kernel lacks a part.
        """
        lacking = missing()
        if self.mode == REQUIRED and lacking:
            raise SandboxMissing(
                f"the sandbox is required, and this kernel cannot prevent {' or '.join(lacking)}",
                next_step="use --sandbox auto for the parts that it has",
            )

    def warning(self) -> str | None:
        """The sentence for what is missing here of the sandbox that was not switched off."""
        if self.mode == AUTO and not self.is_on:
            return (
                "the sandbox is off: CUDA does not start inside it on this machine; "
                "--sandbox required uses it all the same"
            )
        lacking = missing()
        if not (self.is_on and lacking):
            return None
        return f"the sandbox is incomplete: this kernel cannot prevent {' or '.join(lacking)}"

    def describe(self) -> str:
        """ "on", "off", or what it cannot prevent here, for an account."""
        if not self.is_on:
            return OFF
        return f"cannot prevent {' or '.join(missing())}" if missing() else "on"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Of `environ` what a process in this sandbox is started with."""
        return passed_on(environ, self.pass_env) if self.is_on else dict(environ)


DEFAULT = Sandbox()


@dataclass(frozen=True, slots=True)
class Policy:
    """What one process may do: `folder` is its own for temporary files, `writable` are others.

    A process that `judges` may look into those that it starts, and use the user's own `caches` of
    libraries. Without `on`, a process may do all that its user may; a `required` one ends where a
    part is refused.
    """

    on: bool = False
    folder: str = ""
    writable: tuple[str, ...] = ()
    judges: bool = False
    caches: tuple[str, ...] = ()
    required: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))


UNCONFINED = Policy()


def from_json(text: str) -> Policy:
    """The policy that `to_json` described."""
    data = json.loads(text)
    for name in ("writable", "caches"):
        data[name] = tuple(data[name])
    return Policy(**data)


@cache
def _keeps_cuda_out() -> bool:
    """Whether CUDA starts on this machine, and in a confined process it does not."""
    # Outside first, which wakes the driver: inside it is as quick then.
    if not (has_gpu_driver() and cuda.starts(os.environ, list)):
        return False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        policy, own = Policy(True, folder), _private_caches(folder) | {"TMPDIR": folder}
        return not cuda.starts(passed_on(os.environ) | own, lambda c: launched(policy, c))


def missing() -> tuple[str, ...]:
    """What this kernel gives no means to prevent; empty where the sandbox is whole."""
    version, filtered = landlock.abi(), seccomp.is_available()
    parts = (
        ("use of the network", filtered),
        ("writing to files", version >= landlock.FILES_ABI),
        ("reading other processes", version > 0),
        ("signals to other processes", version >= landlock.SIGNALS_ABI),
    )
    return tuple(name for name, there in parts if not there)


@contextlib.contextmanager
def confined(
    sandbox: Sandbox, environ: Mapping[str, str], *writable: str | Path, judges: bool = False
) -> Iterator[tuple[Policy, dict[str, str]]]:
    """The policy and the environment for a process that may write to `writable`.

    Without these, what one that `judges` confines further builds extensions in the user's folder
    for them; all others do so anyway. The temporary folder is removed in the end.

    Raises:
        SandboxMissing: the sandbox is required, and the kernel lacks a part.
    """
    sandbox.require()
    if not sandbox.is_on:
        yield UNCONFINED, dict(environ)
        return
    caches = _users_caches(environ) if judges else {}
    extensions, named = extensions_folder(environ), tuple(map(str, writable))
    own = named if judges and named else (extensions, *named)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for each in (extensions, *named, *caches.values()):
            with contextlib.suppress(OSError):
                os.makedirs(each, exist_ok=True)
        shared = (extensions, *caches.values()) if judges else ()
        policy = Policy(True, folder, own, judges, shared, sandbox.mode == REQUIRED)
        # of the user's, torch.compile's alone moves with the folder of temporary files
        led = {_INDUCTOR: caches[_INDUCTOR]} if judges else _private_caches(folder)
        yield policy, sandbox.environment(environ) | led | {"TMPDIR": folder}


def launched(policy: Policy, command: Sequence[str]) -> list[str]:
    """The command line that enters the sandbox and then runs `command` in its own place."""
    if not policy.on:
        return [*command]
    return [sys.executable, "-P", "-m", "opweld.sandbox.launch", policy.to_json(), *command]


def enter(policy: Policy, protected: tuple[int, ...] = ()) -> None:
    """Confine this process, and all that it starts, for good; a process may do so several times.

    `protected` are processes that get no signals even where Landlock does not see to that. A part
    that the kernel lacks is left out.

    Raises:
        OSError: the kernel refuses a part that it has, and the sandbox is required.
    """
    if not policy.on:
        return
    folders = (policy.folder, *policy.writable, *policy.caches, _SHARED_MEMORY)
    has_mps = _MPS_VARIABLE in os.environ or os.path.isdir(_MPS_FOLDER)
    refused = seccomp.Filter(not policy.judges, protected, has_mps)
    parts: list[Callable[[], None]] = [lambda: limit_resources(files=not policy.judges)]
    parts.append(drop_capabilities)
    if landlock.abi():
        devices = [path for pattern in _DEVICES for path in glob.glob(pattern)]
        parts.append(lambda: landlock.restrict(folders, devices))
    if seccomp.is_available():
        parts.append(lambda: seccomp.restrict(refused))
    for part in parts:
        try:
            part()
        except OSError as error:  # a container may forbid what the kernel has
            if policy.required:
                raise
            print(f"opweld: a part of the sandbox is refused: {error}", file=sys.stderr)


def within(policy: Policy) -> Policy:
    """The policy for a process that is confined further, with a temporary folder of its own.

    This process's libraries are led to caches there, so that what a judged file builds is not
    loaded by the process that judges it. The folder of extensions stays.
    """
    if not policy.on:
        return policy
    folder = tempfile.mkdtemp(dir=policy.folder)
    tempfile.tempdir = folder
    os.environ |= {"TMPDIR": folder, **_private_caches(folder)}
    return replace(policy, folder=folder, judges=False, caches=())


def remove_content(policy: Policy) -> None:
    """Empty the temporary folder of a policy: what was confined within it has ended."""
    if policy.on:
        for entry in Path(policy.folder).iterdir():
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()


def _private_caches(folder: str) -> dict[str, str]:
    """Variables that lead each of the caches of `_CACHES` there."""
    return {name: os.path.join(folder, name.partition("_")[0].lower()) for name in _CACHES}


def _users_caches(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `_CACHES` with the folders that their libraries choose by themselves."""
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())  # as torch._inductor names it
    temporary = tempfile.gettempdir()
    chosen = {
        name: os.path.expanduser(default.format(user=user, temporary=temporary))
        for name, default in _CACHES.items()
    }
    return {name: environ.get(name, folder) for name, folder in chosen.items()}


def extensions_folder(environ: Mapping[str, str]) -> str:
    """Where extensions are built, as torch.utils.cpp_extension chooses it."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return environ.get(_EXTENSIONS) or os.path.join(cache, "torch_extensions")
