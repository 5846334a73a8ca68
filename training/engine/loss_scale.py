"""The loss scale of fp16: a power of two, so that scaling and its undoing change no bit of a number that fits."""

from dataclasses import dataclass

LARGEST = 2.0**24
GOOD_STEPS = 2000
"""After so many steps without an overflow the scale is tried twice as large (Micikevicius et al., ICLR 2018)."""


@dataclass
class LossScale:
    """Equal on every rank, since every rank sees the same norms."""

    value: float = 1.0
    good_steps: int = 0
    is_on: bool = False
    """Off, it stays 1."""

    def lower(self) -> bool:
        """After gradients that are not finite; False where the scale is not to blame."""
        if not self.is_on or self.value <= 1.0:
            return False
        self.value, self.good_steps = self.value / 2, 0
        return True

    def note_good_step(self) -> None:
        """After an update."""
        self.good_steps += 1
        if self.is_on and self.good_steps == GOOD_STEPS and self.value < LARGEST:
            self.value, self.good_steps = self.value * 2, 0
