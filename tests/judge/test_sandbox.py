"""The sandbox: what a model file or a candidate tries must fail there, and succeed without it.

Each attempt raises `Done` where it succeeds, and OSError where the sandbox stops it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.judge.pairs import POINTWISE, write

from opweld import sandbox
from opweld.errors import ModelFileError, SandboxMissing, UserError
from opweld.judge import Server, Settings, check
from opweld.options import Options
from opweld.process.worker import compile_in_child
from opweld.sandbox import (
    _CACHES,
    UNCONFINED,
    Sandbox,
    confined,
    landlock,
    missing,
    seccomp,
    within,
)
from opweld.sandbox.environment import passed_on

QUICK = Settings(device="cpu", measure=False, seed=1, time_limit_s=120.0)
NAME, VALUE = "TORCH_TEST_DEPLOY_TOKEN", "the token"
LOOPBACK = "127.0.0.1"

ATTEMPTS = {
    "a token of the environment": f"""
        if os.environ.get({NAME!r}):
            raise Done
    """,
    "a token of another process": f"""
        with open("/proc/PID/environ", "rb") as file:
            if b"{NAME}={VALUE}" in file.read():
                raise Done
    """,
    "a connection": """
        socket.create_connection(("127.0.0.1", PORT), timeout=5).close()
        raise Done
    """,
    "a socket for datagrams": """
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", PORT))
        raise Done
    """,
    "a socket of the host": """
        socket.socket(socket.AF_UNIX).connect("SOCKET")
        raise Done
    """,
    "a signal": """
        os.kill(PID, 0)
        raise Done
    """,
    "tracing": """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(0x4206, PID, None, None) == 0:  # PTRACE_SEIZE, which does not stop it
            raise Done
        raise OSError(ctypes.get_errno(), "ptrace")
    """,
    "memory of another process": """
        open("/proc/PID/mem", "r+b").close()
        raise Done
    """,
    "a file outside": """
        open("FOLDER/written", "w").close()
        raise Done
    """,
    "a file that is there": """
        os.truncate("FOLDER/kept", 0)
        raise Done
    """,
    "the file of the other side": """
        os.rename("FOLDER/model.py", "FOLDER/moved.py")
        os.rename("FOLDER/moved.py", "FOLDER/model.py")
        raise Done
    """,
}
# The process that judges, and the one that it was started by, from the candidate's.
ON_THE_JUDGE = ("a token of another process", "a signal", "tracing", "memory of another process")
# What the parts of the sandbox that this kernel has must prevent.
NEEDS = {
    "a token of another process": "reading other processes",
    "memory of another process": "reading other processes",
    "a signal": "signals to other processes",
    "a file outside": "writing to files",
    "a file that is there": "writing to files",
    "the file of the other side": "writing to files",
    "a connection": "use of the network",
    "a socket for datagrams": "use of the network",
    "a socket of the host": "use of the network",
    "tracing": "reading other processes",
}


@pytest.fixture(scope="module")
def token() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NAME, VALUE)
        yield


@pytest.fixture(scope="module")
def bystander(token: None) -> Iterator[int]:
    """A process of the same user that has nothing to do with the judge, and holds the token."""
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture(scope="module")
def servers(token: None) -> Iterator[dict[str, Server]]:
    with Server() as confined, Server(sandbox=Sandbox("off")) as free:
        yield {"auto": confined, "off": free}


@pytest.fixture
def attempt(
    request: pytest.FixtureRequest, tmp_path: Path, bystander: int
) -> Iterator[tuple[str, str]]:
    """An attempt by its name, with the places of this machine in it."""
    name = request.param
    (tmp_path / "kept").write_text("content")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind((LOOPBACK, 0))
        tcp.listen()
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        text = textwrap.dedent(ATTEMPTS[name]).replace("PORT", str(tcp.getsockname()[1]))
        text = text.replace("SOCKET", str(tmp_path / "socket"))
        yield name, text.replace("FOLDER", str(tmp_path)).replace("PID", str(bystander))


def function_of(attempt: str) -> str:
    head = "import ctypes, os, socket\n\nclass Done(Exception):\n    pass\n\ndef attempt():\n"
    return head + textwrap.indent(attempt, "    ") + "\n"


def guarded(call: str, indent: str) -> str:
    return textwrap.indent(f"try:\n    {call}\nexcept OSError:\n    pass\n", indent)


def candidate_with(attempt: str) -> str:
    body = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
    return (
        function_of(attempt)
        + body
        + guarded("attempt()", " " * 8)
        + ("        return torch.tanh(x) * x\n")
    )


def skip_without(name: str) -> None:
    if NEEDS.get(name) in missing():
        pytest.skip(f"this kernel has no means against {NEEDS[name]}")


each = pytest.mark.parametrize("attempt", ATTEMPTS, indirect=True)
by_candidate = pytest.mark.parametrize(
    "attempt", [name for name in ATTEMPTS if name in ON_THE_JUDGE], indirect=True
)


@each
def test_a_candidate_cannot_have(
    attempt: tuple[str, str], servers: dict[str, Server], tmp_path: Path
) -> None:
    name, text = attempt
    skip_without(name)
    model = write(tmp_path / "model.py", POINTWISE)
    new = write(tmp_path / "new.py", candidate_with(text))
    free = check(model, new, QUICK, server=servers["off"])
    assert "Done" in free.verdict.reason, f"it fails by itself: {free.verdict.reason}"
    confined = check(model, new, QUICK, server=servers["auto"])
    assert confined.verdict.passed, confined.verdict.reason


@by_candidate
def test_a_candidate_cannot_have_of_the_judge(
    attempt: tuple[str, str], servers: dict[str, Server], tmp_path: Path, bystander: int
) -> None:
    """The process that judges is the candidate's parent; without the sandbox it is open to it."""
    name, text = attempt
    skip_without(name)
    text = text.replace(f"/{bystander}/", "/%d/").replace('environ"', 'environ" % os.getppid()')
    text = text.replace('mem"', 'mem" % os.getppid()').replace(str(bystander), "os.getppid()")
    text = text.replace(f"{NAME}={VALUE}", "PATH=")
    model = write(tmp_path / "model.py", POINTWISE)
    new = write(tmp_path / "new.py", candidate_with(text))
    free = check(model, new, QUICK, server=servers["off"])
    assert "Done" in free.verdict.reason, f"it fails by itself: {free.verdict.reason}"
    confined = check(model, new, QUICK, server=servers["auto"])
    assert confined.verdict.passed, confined.verdict.reason


@each
def test_a_model_file_cannot_have(
    attempt: tuple[str, str], servers: dict[str, Server], tmp_path: Path
) -> None:
    """Neither where it is judged against nor where it is captured."""
    name, text = attempt
    skip_without(name)
    model = write(tmp_path / "model.py", function_of(text) + guarded("attempt()", "") + POINTWISE)
    new = write(tmp_path / "new.py", POINTWISE.replace("Model(", "ModelNew("))
    with pytest.raises(ModelFileError, match="Done"):
        check(model, new, QUICK, server=servers["off"])
    with pytest.raises(ModelFileError, match="Done"):
        compile_in_child(model, Options(target="cpu", sandbox="off"))
    confined = check(model, new, QUICK, server=servers["auto"])
    assert confined.verdict.passed, confined.verdict.reason
    assert compile_in_child(model, Options(target="cpu")).fused


# The other process that the candidate's parent has started.
WITNESS = """
def witness():
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with open(f"/proc/{entry}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getppid():
                    return int(entry)
"""


@pytest.mark.parametrize(
    ("attempt", "needed"),
    [
        ("os.kill(witness(), 0)", "signals to other processes"),
        ('open(f"/proc/{witness()}/mem", "rb").close()', "reading other processes"),
    ],
)
def test_a_candidate_cannot_have_of_the_witness(
    servers: dict[str, Server], tmp_path: Path, attempt: str, needed: str
) -> None:
    model = write(tmp_path / "model.py", POINTWISE)
    new = write(tmp_path / "new.py", WITNESS + candidate_with(f"{attempt}\nraise Done"))
    free = check(model, new, QUICK, server=servers["off"])
    assert "Done" in free.verdict.reason, f"it fails by itself: {free.verdict.reason}"
    if needed not in missing():
        confined = check(model, new, QUICK, server=servers["auto"])
        assert confined.verdict.passed, confined.verdict.reason


# Dynamo replaces functions of torch when it is imported and first used.
COMPILES = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(lambda x: torch.tanh(x) * x, backend="eager")

    def forward(self, x):
        return self.compiled(x)
"""


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_memory_of_both_processes_is_read(
    servers: dict[str, Server], tmp_path: Path, mode: str
) -> None:
    """Of the witness's, too: a difference is looked for there before it is held against a file."""
    model = write(tmp_path / "model.py", POINTWISE)
    same = write(tmp_path / "new.py", POINTWISE.replace("Model(", "ModelNew("))
    checks = check(model, same, QUICK, server=servers[mode]).verdict.checks
    assert {c.name: c.detail for c in checks}["torch and the clock"] == "none"
    witness = write(tmp_path / "compiled.py", COMPILES)
    verdict = check(model, witness, QUICK, server=servers[mode]).verdict
    assert verdict.passed, verdict.reason


def test_the_judgement_says_who_was_confined(servers: dict[str, Server], tmp_path: Path) -> None:
    model = write(tmp_path / "model.py", POINTWISE)
    new = write(tmp_path / "new.py", POINTWISE.replace("Model(", "ModelNew("))
    for mode, server in servers.items():
        environment = check(model, new, QUICK, server=server).environment
        assert environment and environment.sandbox == Sandbox(mode).describe()


def test_temporary_files_go_with_the_candidate(tmp_path: Path) -> None:
    model = write(tmp_path / "model.py", POINTWISE)
    text = "import tempfile\nfolder = tempfile.mkdtemp()\nprint(folder)\n"
    fails = (
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        raise Exception(folder)\n"
    )
    new = write(tmp_path / "new.py", text + fails)
    reason = check(model, new, QUICK).verdict.reason
    folder = Path("/" + reason.partition("Exception: /")[2].split()[0])
    assert len(folder.parts) > 2 and not folder.parent.exists()


def test_without_a_part_it_warns_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 5)
    assert missing() == ("signals to other processes",)
    assert "cannot prevent signals" in (Sandbox().warning() or "")
    assert "cannot prevent signals" in Sandbox().describe()
    assert Sandbox("off").warning() is None and Sandbox("off").describe() == "off"
    model = write(tmp_path / "model.py", POINTWISE)
    with pytest.raises(SandboxMissing, match="--sandbox auto") as caught:
        compile_in_child(model, Options(target="cpu", sandbox="required"))
    assert caught.value.exit_code == 2
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    monkeypatch.setattr(seccomp, "is_available", lambda: False)
    assert len(missing()) == 4


def test_an_unknown_sandbox_is_refused() -> None:
    with pytest.raises(UserError, match="'jail'"):
        Options(sandbox="jail")


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("PATH", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("TORCH_CUDA_ARCH_LIST", True),
        ("NVIDIA_API_KEY", False),
        ("GITHUB_TOKEN", False),
        ("CUDA_LICENSE_KEY", False),
        ("TORCH_HUB_TOKEN", False),
        ("AWS_PROFILE", False),
        ("SSH_AUTH_SOCK", False),
    ],
)
def test_listed_variables_are_passed_on(name: str, passes: bool) -> None:
    assert (name in passed_on({name: "x"})) == passes
    assert name in passed_on({name: "x"}, also=(name,))


def test_a_process_that_multiplies_and_a_file_that_grows_are_stopped(tmp_path: Path) -> None:
    model = write(tmp_path / "model.py", POINTWISE)
    asks = """
import resource
limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)]

class ModelNew(nn.Module):
    def forward(self, x):
        assert all(soft == hard != resource.RLIM_INFINITY for soft, hard in limits), limits
        return torch.tanh(x) * x
"""
    new = write(tmp_path / "new.py", asks)
    verdict = check(model, new, QUICK).verdict
    assert verdict.passed, verdict.reason


def test_another_table_of_system_calls_is_complete() -> None:
    programs = [seccomp._program(machine, seccomp.Filter()) for machine in seccomp._NUMBERS]
    assert {len(program) for program in programs} == {len(programs[0])}
    assert os.uname().machine in seccomp._NUMBERS or "use of the network" in missing()


def test_a_judge_keeps_the_users_caches_from_what_it_confines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    environ = dict(os.environ)
    with confined(Sandbox(), environ, judges=True) as (policy, given):
        assert str(tmp_path / "inductor") in policy.caches
        assert given["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
        temporary = tempfile.gettempdir()
        monkeypatch.setattr(tempfile, "tempdir", temporary)  # so that it is put back
        for name in ("TMPDIR", *_CACHES):
            monkeypatch.setenv(name, "")
        inner = within(policy)
        tempfile.tempdir = temporary
        assert not inner.caches and inner.writable == (str(tmp_path / "extensions"),)
        assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == Path(inner.folder)
        assert Path(inner.folder).parent == Path(policy.folder)
    assert not Path(policy.folder).exists()
    with confined(Sandbox(), environ, tmp_path / "builds", judges=True) as (policy, given):
        assert policy.writable == (str(tmp_path / "builds"),), "and not the user's extensions"
    with confined(Sandbox(), environ, tmp_path / "answer") as (policy, given):
        assert set(policy.writable) == {str(tmp_path / n) for n in ("answer", "extensions")}
        assert Path(given["TORCHINDUCTOR_CACHE_DIR"]).parent == Path(policy.folder)
    with confined(Sandbox("off"), environ) as (policy, given):
        assert policy == UNCONFINED and given == environ


def test_a_part_that_is_refused_is_left_out_unless_it_is_required(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = []

    def refuses() -> None:
        raise PermissionError(1, "not in this container")

    for name in ("drop_capabilities", "limit_resources"):
        monkeypatch.setattr(sandbox, name, lambda **given: done.append(given))
    monkeypatch.setattr(sandbox, "drop_capabilities", refuses)
    monkeypatch.setattr(landlock, "restrict", lambda *given: done.append(given))
    monkeypatch.setattr(seccomp, "restrict", lambda *given: done.append(given))
    parts = 1 + (landlock.abi() > 0) + seccomp.is_available()
    sandbox.enter(sandbox.Policy(on=True))
    assert len(done) == parts and "not in this container" in capfd.readouterr().err
    with pytest.raises(PermissionError):
        sandbox.enter(sandbox.Policy(on=True, required=True))
    sandbox.enter(UNCONFINED)
    assert len(done) == parts + 1
