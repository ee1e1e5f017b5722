"""What a device reaches: `python -m opweld.judge.measure.calibration` prints it as JSON.

`copy_gbps` counts the bytes that are read and written (10^9), products are square, by dtype.
"""

from __future__ import annotations

import json

import torch

from opweld.judge.measure.limits import copy_samples, product_tflops
from opweld.judge.process.environment import choose_device, describe
from opweld.judge.values import to_plain

_DTYPES = {
    "cuda": (torch.float32, torch.float16, torch.bfloat16),
    "cpu": (torch.float32,),
}


def main() -> None:
    device = choose_device("auto")
    samples, num_bytes = copy_samples(device)
    rates = {
        str(dtype).removeprefix("torch."): product_tflops(device, dtype)
        for dtype in _DTYPES[device.type]
    }
    found = {"copy_gbps": num_bytes / samples.median / 1e6, "product_tflops": rates}
    print(json.dumps({**found, "environment": to_plain(describe(device))}))


if __name__ == "__main__":
    main()
