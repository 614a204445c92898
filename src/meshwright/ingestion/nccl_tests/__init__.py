"""Read output of nccl-tests and rccl-tests, and fit the constants of collectives to it."""
