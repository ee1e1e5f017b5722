"""Attention in a graph, as it is written or called."""
