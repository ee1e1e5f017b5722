"""The host code of operators."""
