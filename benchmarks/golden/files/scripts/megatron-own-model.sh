torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 6 --hidden-size 1024 --ffn-hidden-size 2816 --num-attention-heads 16 --group-query-attention --num-query-groups 8 \
    --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --rotary-base 500000 \
    --untie-embeddings-and-output-weights --vocab-size 32000 --max-position-embeddings 4096 --seq-length 4096 \
    --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 32 --bf16 \
    --use-distributed-optimizer --recompute-activations
