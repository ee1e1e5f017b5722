"""torch.export, and what a graph needs before it is translated."""
