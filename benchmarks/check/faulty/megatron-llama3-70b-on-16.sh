# NVIDIA/Megatron-LM#1308: Llama 3 70B runs out of memory on two nodes of eight 80 GB devices, whatever is set.
# From the thread: model, devices, a sequence of 16 tokens (with which 70 of the 80 layers were the most that fitted).
# Completed with what saves most: model parallelism over all devices, full recomputation, micro-batch 1.
torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights \
    --seq-length 16 --max-position-embeddings 8192 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --sequence-parallel \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --micro-batch-size 1 --global-batch-size 16 --bf16 --use-distributed-optimizer
