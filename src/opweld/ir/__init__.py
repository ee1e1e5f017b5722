"""The values that pass between stages: pure Python, and nothing of ours outside this folder."""
