"""The loss scale of fp16: a power of two, so that scaling and unscaling change no bit of a number in range."""

from dataclasses import dataclass

LARGEST = 2.0**24
GOOD_STEPS = 2000
"""Steps without an overflow after which the scale is doubled (Micikevicius et al., ICLR 2018)."""


@dataclass
class LossScale:
    """Loss scale, equal on every rank since every rank sees the same norms."""

    value: float = 1.0
    good_steps: int = 0
    is_on: bool = False
    """If off, the scale stays 1."""

    def lower(self) -> bool:
        """Halve the scale after gradients that are not finite; False if the scale is not to blame."""
        if not self.is_on or self.value <= 1.0:
            return False
        self.value, self.good_steps = self.value / 2, 0
        return True

    def note_good_step(self) -> None:
        """Count an update; double the scale after enough of them."""
        self.good_steps += 1
        if self.is_on and self.good_steps == GOOD_STEPS and self.value < LARGEST:
            self.value, self.good_steps = self.value * 2, 0
