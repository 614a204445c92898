# pytorch/torchtitan#4016: the shipped recipe (one stage, two expert ranks, four sequences on every rank) exceeded
# 276 GiB. From the thread: all degrees and the local batch; from the recipe (b5bcd76c): length and recomputation.
# Completed: the number of devices, that of the layout which the thread puts in its place.
torchrun --nnodes 64 --nproc_per_node 4 -m torchtitan.train \
    --module deepseek_v3 --config deepseek_v3_671b \
    --parallelism.pipeline_parallel_degree 1 \
    --parallelism.tensor_parallel_degree 1 \
    --parallelism.expert_parallel_degree 2 \
    --training.local_batch_size 4 \
    --training.seq_len 4096 \
    activation-checkpoint:selective
