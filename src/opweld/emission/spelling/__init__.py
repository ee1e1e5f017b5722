"""Operations as PyTorch calls: for references, and for what stays a call."""
