# pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md, table 5, 1F1B: 82.5 GiB of 96 GB.
torchrun --nnodes 64 --nproc_per_node 8 -m torchtitan.train \
    --module llama3 --config llama3_405b \
    --parallelism.data_parallel_shard_degree 8 --parallelism.tensor_parallel_degree 8 \
    --parallelism.pipeline_parallel_degree 8 --parallelism.pipeline_parallel_schedule 1F1B \
    --training.local_batch_size 32 --training.global_batch_size 256 --training.seq_len 8192 \
    --compile.enable --compile.enable_async_tensor_parallel --training.disable_cuda_graphs \
    activation-checkpoint:full
