"""Kernels as C++ that g++ vectorises."""
