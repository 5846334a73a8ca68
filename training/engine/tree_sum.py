"""The one order in which gradients are added, whichever rank or replica computed them."""

from torch import Tensor


class TreeSum:
    """Sum of gradient sets in a fixed binary tree: like a binary counter, it holds at most log2(n) + 1 sets.

    Sets are paired as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)); a tree of any n splits at the largest power of two
    below n.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, list[Tensor]]] = []

    def add(self, tensors: list[Tensor]) -> None:
        """Add the next set; the list is taken over, its tensors are not changed."""
        count = 1
        while self._sums and self._sums[-1][0] == count:
            tensors = add_sets(self._sums.pop()[1], tensors)
            count *= 2
        self._sums.append((count, tensors))

    def take_total(self) -> list[Tensor]:
        """The sum of all sets since the last call; empty if there were none."""
        if not self._sums:
            return []
        total = self._sums.pop()[1]
        while self._sums:
            total = add_sets(self._sums.pop()[1], total)
        return total

    def __len__(self) -> int:
        """Gradient sets held now."""
        return len(self._sums)


def add_sets(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """Both lists are taken over and let go of their tensors one by one, so no third set is ever held."""
    if len(left) != len(right):
        raise ValueError(f"two gradient sets of one stage differ in length: {len(left)} and {len(right)} tensors")
    total = []
    while left:
        # Not in place: autograd may have given the same memory to two gradients.
        total.append(left.pop() + right.pop())
    return total[::-1]
