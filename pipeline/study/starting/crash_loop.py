"""Detection of a crash loop: workers that keep ending at once will not do better the next time."""

from __future__ import annotations

from pipeline.errors import ProcessFailedError

MAX_EARLY_ENDS = 5
EARLY_S = 10.0


class CrashLoop:
    """Counts workers that ended early; one that lasted longer starts the count again."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, seconds: float, how: str) -> None:
        """Count a worker that ended before the study was over.

        Args:
            seconds: how long it lasted.
            how: how it ended, for the message.

        Raises:
            ProcessFailedError: too many have ended early.
        """
        self._count = self._count + 1 if seconds < EARLY_S else 0
        if self._count >= MAX_EARLY_ENDS:
            raise ProcessFailedError(
                f"{self._count} workers ended within {EARLY_S:.0f} s of their start, the last {how}. Finished work is "
                "kept; fix the cause and run again."
            )
