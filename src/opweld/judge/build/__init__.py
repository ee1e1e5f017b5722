"""Building a candidate's kernels, and what to say where that fails."""
