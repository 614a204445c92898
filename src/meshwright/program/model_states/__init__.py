"""Model states under ZeRO: bytes of parameters, gradients and optimizer states, their gathers and reductions."""
