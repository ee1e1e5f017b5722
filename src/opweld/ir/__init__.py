"""The values that pass between stages. Pure Python: no torch, no I/O, nothing of ours outside this folder."""
