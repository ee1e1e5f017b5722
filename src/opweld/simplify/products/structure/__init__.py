"""Products with matrices that are known to have zeros: diagonal and triangular ones."""
