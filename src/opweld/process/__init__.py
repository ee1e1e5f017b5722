"""Child processes of the compiler: what is not ours runs there."""
