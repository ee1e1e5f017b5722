"""What torch's flags allow float32 operations to be on a GPU."""

from __future__ import annotations

import torch


def allows_tf32() -> bool:
    """Whether matrix products may be less precise than float32."""
    return torch.get_float32_matmul_precision() != "highest"


def allows_tf32_convolutions() -> bool:
    """Whether convolutions may be less precise than float32."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the flag of each operator was set
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")
