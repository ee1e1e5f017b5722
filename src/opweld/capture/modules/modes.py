"""Whether the mode of a module matters, as far as its layers tell without a second capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def surely_differ(
    module: nn.Module,
    readers: Iterable[str],
    left: Mapping[str, bool],
    right: Mapping[str, bool],
) -> bool:
    """Whether a forward that runs `readers`, submodules that read their training flag, is another
    computation under other flags: a live dropout is among them, or a norm with running statistics.
    """
    changed = (path for path in readers if left[path] is not right[path])
    return any(_has_two_forwards(module.get_submodule(path)) for path in changed)


def _has_two_forwards(layer: nn.Module) -> bool:
    if not type(layer).__module__.startswith("torch.nn.modules."):
        return False  # a class of the user's may do anything
    if isinstance(layer, _NormBase):
        return layer.running_mean is not None
    return isinstance(layer, _DropoutNd) and layer.p > 0
