"""Names of error codes and exit statuses, one home for all tests."""

import enum


class ErrorCode(enum.IntEnum):
    """`errnum` of a kXR_error reply and `rc` of an extended attribute."""

    ARG_INVALID = 3000
    ARG_MISSING = 3001
    ARG_TOO_LONG = 3002
    FILE_LOCKED = 3003
    FILE_NOT_OPEN = 3004
    FS_ERROR = 3005
    INVALID_REQUEST = 3006
    IO_ERROR = 3007
    NO_MEMORY = 3008
    NO_SPACE = 3009
    NOT_AUTHORIZED = 3010
    NOT_FOUND = 3011
    SERVER_ERROR = 3012
    UNSUPPORTED = 3013
    NO_SERVER = 3014
    NOT_FILE = 3015
    IS_DIRECTORY = 3016
    CANCELLED = 3017
    IT_EXISTS = 3018
    CHKSUM_ERR = 3019
    IN_PROGRESS = 3020
    OVER_QUOTA = 3021
    OVERLOADED = 3024
    FS_READ_ONLY = 3025
    BAD_PAYLOAD = 3026
    ATTR_NOT_FOUND = 3027
    NO_REPLICAS = 3029
    CONFLICT = 3032
    TOO_MANY_ERRS = 3033

    @property
    def shown(self):
        """Returns the code as command line programs print it: `[3011]`."""
        return f"[{self.value}]"


class CmsError(enum.IntEnum):
    """Error number of a cms `error` reply."""

    ENOENT = 1
    EPERM = 2
    EACCES = 3
    EINVAL = 4


class Exit(enum.IntEnum):
    """Exit statuses of `scalla`."""

    FAILED = 1
    USAGE = 2
    # The reply to a request was lost, so the result is unknown.
    UNCERTAIN = 3
    INTERRUPTED = 130


class ShellCode(enum.IntEnum):
    """Exit statuses of `xrdcp` and `xrdfs`, real and ours: 50 and the class of the error."""

    CLIENT_ERROR = 50
    CONNECTION = 51
    SESSION = 52
    PROTOCOL = 53
    SERVER_ERROR = 54
    INVALID_QUERY = 55
