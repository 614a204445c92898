"""Read measurements of other tools: training logs, Kineto traces, nccl-tests output, measured clusters."""
