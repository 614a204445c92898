# pytorch/torchtitan#1789 and its mend #1792: with a local batch of 4 it runs, at 73.3 GiB of 80 GB.
torchrun --nnodes 1 --nproc_per_node 8 -m torchtitan.train \
    --module deepseek_v3 --config deepseek_v3_16b \
    --parallelism.data_parallel_replicate_degree 1 --parallelism.data_parallel_shard_degree -1 \
    --parallelism.tensor_parallel_degree 1 --parallelism.pipeline_parallel_degree 1 \
    --parallelism.expert_parallel_degree 8 \
    --training.local_batch_size 4 --training.seq_len 4096 \
    --compile.enable --compile.components loss \
    activation-checkpoint:selective
