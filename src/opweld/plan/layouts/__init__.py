"""In which order the axes of tensors lie: with channels last where convolutions gain by it."""

from .choice import in_channels_last
from .moved import channels_last

__all__ = ["channels_last", "in_channels_last"]
