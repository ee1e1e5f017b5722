"""Training both sides from the same weights, and how far their losses part."""
