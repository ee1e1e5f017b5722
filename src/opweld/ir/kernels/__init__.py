"""Kernels as values: what lowering gives to rendering."""
