# pytorch/torchtitan#932: on two nodes of eight, half a key-value head per rank breaks a reshape.
# From the thread: model, devices, length, and with the tensor's size (524288 = 8192 x 128 / 2) tp = 16.
# Completed: local batch 1, which its shape shows too, and selective recomputation of the configuration.
torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train \
    --module llama3 --config llama3_8b \
    --parallelism.tensor_parallel_degree 16 \
    --training.local_batch_size 1 \
    --training.seq_len 8192 \
    activation-checkpoint:selective
