"""A process whose system calls the kernel refuses: those of the data path, as old kernels and some
containers do, or writes beyond a quota of the disk."""

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
# The number of pwrite64.
_PWRITE = {"x86_64": 18, "aarch64": 68}
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_FILTER = 2
_ALLOW = 0x7FFF0000
_ERROR = 0x00050000
_LOAD = 0x20  # a word of the call's data, at an offset
_JUMP_IF_EQUAL = 0x15  # skips the first count of instructions if equal, otherwise the second
_JUMP_IF_AT_LEAST = 0x35
_RETURN = 0x06
# Places of the offset of a pwrite64 in the data of a call: the fourth argument, low and high half.
_OFFSET_LOW, _OFFSET_HIGH = 40, 44


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


def _quota_filter(architecture, call, limit):
    """Refuses a call whose offset is at least `limit`, which is below 4 GiB."""
    program = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 0, 6, architecture), (_LOAD, 0, 0, 0), (_JUMP_IF_EQUAL, 0, 4, call)]
    program += [(_LOAD, 0, 0, _OFFSET_HIGH), (_JUMP_IF_AT_LEAST, 3, 0, 1), (_LOAD, 0, 0, _OFFSET_LOW), (_JUMP_IF_AT_LEAST, 1, 0, limit)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EDQUOT)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


# Loaded before any fork, because as little as possible should run between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)


class Refusal:
    """A filter that is ready to be loaded."""

    def __init__(self, make):
        machine = platform.machine()
        code = make(machine) if machine in _ARCHITECTURES else None
        self.buffer = ctypes.create_string_buffer(code, len(code)) if code else None
        self.program = _Program(len(code) // 8, ctypes.addressof(self.buffer)) if code else None

    def __call__(self):
        """Makes the calls fail in this process and in its children."""
        if self.program is None:
            raise OSError(errno.ENOTSUP, f"no numbers of system calls are known for {platform.machine()}")
        for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, ctypes.byref(self.program), 0, 0)):
            if _LIBC.prctl(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "the kernel takes no filter")


refuse = Refusal(lambda machine: _filter(*_ARCHITECTURES[machine]))


def over_quota(limit):
    """Returns the refusal of writes at offsets from `limit` on, with the error of a quota that is used up."""
    return Refusal(lambda machine: _quota_filter(_ARCHITECTURES[machine][0], _PWRITE[machine], limit))
