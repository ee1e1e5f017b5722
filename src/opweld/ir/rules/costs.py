"""What decides between forms of a graph that mean the same: the time that each would take."""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Size
from ..plan import Sizes, number_at


@dataclass(frozen=True, slots=True)
class Costs:
    """The speed of a machine, and examples of symbolic sizes. `call_s` is what an operation takes
    beside its work. With `own_products` float32 products are kernels of ours, which compute what
    follows them, too, and have smaller errors than the library's.
    """

    sizes: Sizes = ()
    flops_per_s: float = 50e12
    bytes_per_s: float = 4e12
    call_s: float = 0.0
    own_products: bool = False

    def number(self, size: Size) -> int:
        """A size at the examples."""
        return number_at(size, self.sizes)

    def seconds(self, flops: Size, num_bytes: Size) -> float:
        """Of one operation."""
        work = self.number(flops) / self.flops_per_s
        return max(work, self.number(num_bytes) / self.bytes_per_s) + self.call_s


NO_COSTS = Costs()
