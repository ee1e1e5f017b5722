"""The backward of fused groups by kernels of their own."""
