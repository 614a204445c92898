"""Training on one rank: batches in, steps by the interpreter, metrics and checkpoints out."""
