# pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md, table 1, FSDP and compile: 77.0 GiB of 96 GB.
NGPU=8
torchrun --nnodes 1 --nproc_per_node 8 -m torchtitan.train \
    --module llama3 --config llama3_8b \
    --parallelism.data_parallel_shard_degree 8 \
    --training.local_batch_size 2 --training.global_batch_size 16 --training.seq_len 8192 \
    --compile.enable \
    activation-checkpoint:selective
