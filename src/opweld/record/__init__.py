"""What is written down of a compilation, for whoever reads its plan later."""
