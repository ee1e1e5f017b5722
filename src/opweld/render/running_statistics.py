"""What moves all running statistics of a forward at once, on CUDA: its kernel and its operator."""

from __future__ import annotations

from ..ir.kernels.source import TRACK, KernelText

DECLARATION = f"""extern "C" int {TRACK}_launch(
    const TensorView* running, const TensorView* towards, int num, const TensorView* counts,
    int num_counts, double momentum, void* stream)"""
KERNEL = KernelText(
    TRACK,
    f"""// Running statistics move towards those of the batch, all of a forward in one launch.
{DECLARATION} {{
  return op::move_statistics(running, towards, num, counts, num_counts, momentum, stream);
}}
""",
    0.2,  # seconds
)
OPERATOR = f"""bool {TRACK}(
    std::vector<Tensor> running, std::vector<Tensor> towards, std::vector<Tensor> counts,
    double momentum) {{
  return host::track(__func__, {TRACK}_launch, running, towards, counts, momentum);
}}
"""
SCHEMA = (
    f"{TRACK}(Tensor(a!)[] running, Tensor[] towards, Tensor(b!)[] counts, float momentum) -> bool"
)
