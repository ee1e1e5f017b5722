"""Landlock: what Linux lets an unprivileged process take from itself and its descendants.

Files become read-only outside the named folders, processes outside the domain can be neither
traced nor (from ABI 6) sent a signal. A process may enter a domain within its domain. The numbers
are those of linux/landlock.h; the packages that wrap it know older ABIs only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

from opweld.sandbox.privileges import gain_none

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
# Removing of folders and files; making of devices, folders, files, sockets, pipes and links.
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract Unix sockets, signals
# From these versions on: renames between folders and truncation by name are covered; TCP; signals.
FILES_ABI, TCP_ABI, SIGNALS_ABI = 3, 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The version of Landlock that the kernel has switched on; 0 without it."""
    return max(0, _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def restrict(writable: Iterable[str], devices: Iterable[str]) -> None:
    """From here on this thread, and what it starts, writes beneath `writable` and to `devices`.

    The first are folders, in which files come and go; of the second the contents may be written.
    Paths that are not there are passed over. Reading stays as it is.

    Raises:
        OSError: the kernel refuses; nothing has changed then.
    """
    version = abi()
    files = _WRITE_FILE | _CHANGE_FOLDER | _REFER | (_TRUNCATE if version >= FILES_ABI else 0)
    ruleset = _Ruleset(
        files, _TCP if version >= TCP_ABI else 0, _SCOPES if version >= SIGNALS_ABI else 0
    )
    size = ctypes.c_size_t(ctypes.sizeof(ruleset))
    descriptor = _checked(_libc().syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0))
    try:
        for path in writable:
            _allow(descriptor, path, files)
        for path in devices:
            _allow(descriptor, path, files & (_WRITE_FILE | _TRUNCATE))
        gain_none()
        _checked(_libc().syscall(_RESTRICT_SELF, descriptor, 0))
    finally:
        os.close(descriptor)


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = _PathBeneath(access, parent)
            _checked(_libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
        finally:
            os.close(parent)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
