# pytorch/torchtitan#1184: dp_shard = 8 beside cp = 8 was wanted on one node of eight, and is refused.
# From the thread: all degrees and devices. Completed: model, length, batch.
torchrun --nnodes 1 --nproc_per_node 8 -m torchtitan.train \
    --module llama3 --config llama3_8b \
    --parallelism.data_parallel_replicate_degree 1 \
    --parallelism.data_parallel_shard_degree 8 \
    --parallelism.context_parallel_degree 8 \
    --training.local_batch_size 1 \
    --training.seq_len 8192 \
    activation-checkpoint:selective
