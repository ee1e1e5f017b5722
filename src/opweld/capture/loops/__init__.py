"""Loops of a forward, which export writes out turn by turn."""
