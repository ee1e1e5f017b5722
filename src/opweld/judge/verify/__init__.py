"""What is tried on a pair: inputs, states, gradients, memory."""
