"""Giving up what a process that runs as root may do beyond other users, and what `exec` adds."""

from __future__ import annotations

import ctypes
import os

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
_CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER: root's files may belong to others in containers.
_KEPT = 0b1111


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def gain_none() -> None:
    """No program that is executed from here on gets more rights than this process has."""
    _checked(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def drop_capabilities() -> None:
    """Of this thread and what it starts, for good; those for access to files stay.

    Some of root's let a process be read that Landlock keeps it from.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_CAPABILITY_VERSION_3, 0), (_Sets * 2)()
    _checked(libc.capget(ctypes.byref(header), ctypes.byref(sets)))
    left = sets[0].permitted & _KEPT
    sets[0] = _Sets(left, left, 0)
    sets[1] = _Sets(0, 0, 0)
    _checked(libc.capset(ctypes.byref(header), ctypes.byref(sets)))


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
