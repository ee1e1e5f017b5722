"""A seccomp filter: system calls that a judged process has no use for fail with an error.

The filter is a classic BPF program over `struct seccomp_data` (linux/seccomp.h, linux/filter.h).
libseccomp would write it, too, but its Python binding comes with the distribution, not from PyPI.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
from collections.abc import Collection
from dataclasses import dataclass

from opweld.sandbox.privileges import gain_none

_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_TSYNC = 1  # all threads of the process get the filter
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000

# Numbers of system calls by machine: asm/unistd_64.h, asm-generic/unistd.h.
_NUMBERS = {
    "x86_64": {
        "seccomp": 317, "socket": 41, "connect": 42, "ptrace": 101, "process_vm_readv": 310,
        "process_vm_writev": 311, "perf_event_open": 298, "bpf": 321, "add_key": 248,
        "request_key": 249, "keyctl": 250, "kill": 62, "tkill": 200, "tgkill": 234,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    },
    "aarch64": {
        "seccomp": 277, "socket": 198, "connect": 203, "ptrace": 117, "process_vm_readv": 270,
        "process_vm_writev": 271, "perf_event_open": 241, "bpf": 280, "add_key": 217,
        "request_key": 218, "keyctl": 219, "kill": 129, "tkill": 130, "tgkill": 131,
        "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
    },
}  # fmt: skip
_SHARED = {"io_uring_setup": 425, "pidfd_open": 434, "pidfd_getfd": 438}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Sockets can be reached by io_uring, too, which no filter sees.
_KERNEL = ("perf_event_open", "bpf", "add_key", "request_key", "keyctl")
_OF_OTHERS = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd")
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


@dataclass(frozen=True, slots=True)
class Filter:
    """What is refused beside the network and the kernel's own interfaces.

    `inspection` is looking into other processes; `protected` are processes that get no signals;
    `connects` says that Unix sockets may be connected (CUDA's MPS daemon is reached so).
    """

    inspection: bool = True
    protected: tuple[int, ...] = ()
    connects: bool = False


def is_available() -> bool:
    """Whether this kernel filters system calls, on a machine whose numbers stand above."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        return False
    action = ctypes.c_uint32(_ERRNO)
    call = ctypes.CDLL(None).syscall
    return call(numbers["seccomp"], _GET_ACTION_AVAILABLE, 0, ctypes.byref(action)) == 0


def restrict(wanted: Filter) -> None:
    """Filter the system calls of this process and of all that it starts, from here on.

    Raises:
        OSError: the kernel refuses; nothing has changed then.
    """
    numbers = _NUMBERS[platform.machine()]
    instructions = _program(platform.machine(), wanted)
    array = (_Instruction * len(instructions))(*instructions)
    program = _Program(len(instructions), array)
    gain_none()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(numbers["seccomp"], _SET_MODE_FILTER, _TSYNC, ctypes.byref(program)):
        number = ctypes.get_errno() or errno.ESRCH  # positive: a thread that cannot have it
        raise OSError(number, os.strerror(number))


def _program(machine: str, wanted: Filter) -> list[_Instruction]:
    numbers = _NUMBERS[machine] | _SHARED
    refused = dict.fromkeys(_KERNEL, errno.EPERM)
    refused |= dict.fromkeys(_OF_OTHERS if wanted.inspection else (), errno.EPERM)
    refused |= {"io_uring_setup": errno.ENOSYS}
    if not wanted.connects:
        refused |= {"connect": errno.ECONNREFUSED}  # as where nobody listens
    found = [
        _load(_ARCH_OFFSET),
        *_unless(_IF_EQUAL, _ARCHITECTURES[machine], errno.ENOSYS),
        _load(_NUMBER_OFFSET),
        *_where(_IF_AT_LEAST, _X32_BIT, errno.ENOSYS),
    ]
    for name, number in refused.items():
        found += _where(_IF_EQUAL, numbers[name], number)
    found += _if_called(numbers["socket"], _unless(_IF_EQUAL, int(socket.AF_UNIX), errno.EPERM))
    if wanted.protected:
        for name in _SIGNALS:
            found += _if_called(numbers[name], _unless_protected(wanted.protected))
    return [*found, _Instruction(_RETURN, 0, 0, _ALLOW)]


def _if_called(number: int, about_argument: list[_Instruction]) -> list[_Instruction]:
    """What is asked of the first argument of one system call; the others go on behind it."""
    body = [_load(_FIRST_ARGUMENT_OFFSET), *about_argument, _load(_NUMBER_OFFSET)]
    return [_Instruction(_IF_EQUAL, 0, len(body), number), *body]


def _unless_protected(protected: Collection[int]) -> list[_Instruction]:
    """A process, its group, or (-1) all that there are."""
    values = (-1, *protected, *(-pid for pid in protected))
    return [step for value in values for step in _where(_IF_EQUAL, value % 2**32, errno.EPERM)]


def _where(condition: int, value: int, number: int) -> list[_Instruction]:
    return [_Instruction(condition, 0, 1, value), _Instruction(_RETURN, 0, 0, _ERRNO | number)]


def _unless(condition: int, value: int, number: int) -> list[_Instruction]:
    return [_Instruction(condition, 1, 0, value), _Instruction(_RETURN, 0, 0, _ERRNO | number)]


def _load(offset: int) -> _Instruction:
    return _Instruction(_LOAD, 0, 0, offset)
