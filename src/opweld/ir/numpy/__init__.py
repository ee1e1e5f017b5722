"""The meaning of graphs and kernels, in NumPy."""
