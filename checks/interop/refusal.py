"""A process whose data path system calls are refused by the kernel, as by old kernels and some
containers."""

import ctypes
import errno
import platform
import struct

# Number of the architecture for seccomp, and of its calls: preadv2, sendfile, io_uring_setup,
# openat2, cachestat.
_ARCHITECTURES = {
    "x86_64": (0xC000003E, (327, 40, 425, 437, 451)),
    "aarch64": (0xC00000B7, (286, 71, 425, 437, 451)),
}
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_FILTER = 2
_ALLOW = 0x7FFF0000
_ERROR = 0x00050000
_LOAD = 0x20  # a word of the call's data, at an offset
_JUMP_IF_EQUAL = 0x15  # skips the first count of instructions if equal, otherwise the second
_RETURN = 0x06


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def _filter(architecture, calls):
    """Encodes an instruction for the kernel's filter machine: code, jump if true, jump if false,
    operand."""
    refuse = len(calls)
    program = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 0, refuse + 1, architecture), (_LOAD, 0, 0, 0)]
    program += [(_JUMP_IF_EQUAL, refuse - place, 0, call) for place, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


# Loaded before any fork, because as little as possible should run between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)
_CODE = _filter(*_ARCHITECTURES[platform.machine()]) if platform.machine() in _ARCHITECTURES else None
_BUFFER = ctypes.create_string_buffer(_CODE, len(_CODE)) if _CODE else None
_PROGRAM = _Program(len(_CODE) // 8, ctypes.addressof(_BUFFER)) if _CODE else None


def refuse():
    """Makes the calls fail in this process and in its children."""
    if _PROGRAM is None:
        raise OSError(errno.ENOTSUP, f"no numbers of system calls are known for {platform.machine()}")
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, ctypes.byref(_PROGRAM), 0, 0)):
        if _LIBC.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no filter")
