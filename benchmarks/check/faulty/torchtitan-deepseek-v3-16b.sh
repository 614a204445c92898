# pytorch/torchtitan#1789: the configuration as it was (parent of 82a9530f) runs out of memory on eight H100 of 80 GB.
# From the thread and that file: all of it; half the local batch runs.
torchrun --nnodes 1 --nproc_per_node 8 -m torchtitan.train \
    --module deepseek_v3 --config deepseek_v3_16b \
    --parallelism.data_parallel_replicate_degree 1 \
    --parallelism.data_parallel_shard_degree -1 \
    --parallelism.tensor_parallel_degree 1 \
    --parallelism.pipeline_parallel_degree 1 \
    --parallelism.expert_parallel_degree 8 \
    --training.local_batch_size 8 \
    --training.seq_len 4096 \
    --compile.enable --compile.components loss \
    activation-checkpoint:selective
