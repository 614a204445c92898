"""How a process comes to be a rank: forked here, or started by torchrun or Slurm."""
