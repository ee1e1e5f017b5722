"""Steps of training of small networks whose convolutions, of the library's, have their channels
last: emitted CUDA under emulation, beside float64.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.emulation.convolution_models import source
from tests.emulation.test_pooling_gradients import require_near_float64

NETWORKS = {
    # A transposed convolution knows nothing of the order: what goes to it is moved, and joined.
    "unet": source(
        """norm = lambda n: nn.Sequential(nn.BatchNorm2d(n), nn.ReLU())
    self.top = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), norm(6))
    self.low = nn.Sequential(nn.Conv2d(6, 9, 3, padding=1, bias=False), norm(9))
    self.up = nn.ConvTranspose2d(9, 6, 2, 2)
    self.last = nn.Sequential(nn.Conv2d(12, 6, 3, padding=1, bias=False), norm(6))
    self.head = nn.Conv2d(6, 2, 1)""",
        """y = self.top(x)
    z = self.up(self.low(F.max_pool2d(y, 2)))
    return self.head(self.last(torch.cat([y, z], 1)))""",
        "2, 3, 12, 10",
    ),
    "residual": source(
        """self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
    self.norm = nn.BatchNorm2d(8)
    self.one = nn.Conv2d(8, 12, 3, 2, 1, bias=False)
    self.two = nn.Conv2d(12, 12, 3, 1, 1, bias=False)
    self.down = nn.Conv2d(8, 12, 1, 2, bias=False)
    self.norms = nn.ModuleList(nn.BatchNorm2d(12) for _ in range(3))
    self.head = nn.Linear(12, 5)""",
        """x = F.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1)
    y = torch.relu(self.norms[0](self.one(x)))
    y = torch.relu(self.norms[1](self.two(y)) + self.norms[2](self.down(x)))
    return self.head(y.mean((2, 3)))""",
        "3, 3, 30, 26",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_near_float64(name: str, tmp_path: Path) -> None:
    require_near_float64(name, NETWORKS[name], ".permute(0, 3, 1, 2)", tmp_path)
