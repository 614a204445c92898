"""Start processes as ranks: forked here, or launched by torchrun or Slurm."""
