"""Matrix products, convolutions and attention as CUDA C++."""
