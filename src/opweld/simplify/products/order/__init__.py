"""Chains of matrix products in the order that takes the least time."""
