"""opweld: from a PyTorch model to one verified, measured, self-contained `ModelNew` file."""

__version__ = "0.1.0"
