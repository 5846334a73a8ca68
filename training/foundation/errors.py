"""The base of all errors that a person reads, and those that writing a file can raise.

Plain subclasses with one message argument, so that they cross process pools. `code` is what run
records and `--json` lines carry (docs/store.md, "Run record").
"""


class GemslideError(Exception):
    """Base of every error that is the input's fault, not the program's."""

    code = "unreadable"


class LockedError(GemslideError):
    """Another process writes the same output."""

    code = "locked"


class DiskFullError(GemslideError):
    """The output could not be written: no space, or no permission."""

    code = "disk_full"
