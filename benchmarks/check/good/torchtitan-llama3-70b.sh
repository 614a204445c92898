# pytorch/torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, 70B in bf16 with plain tensor parallelism:
# 597 tokens/s on each of 256 devices.
torchrun --nnodes 32 --nproc_per_node 8 -m torchtitan.train \
    --module llama3 --config llama3_70b \
    --parallelism.data_parallel_shard_degree 32 --parallelism.tensor_parallel_degree 8 \
    --training.local_batch_size 16 --training.seq_len 8192 \
    --compile.enable \
    activation-checkpoint:full
