# modelscope/ms-swift#5737, its Megatron options: 46 layers do not divide over four stages.
# From the thread: every degree, batch, length and recomputation. Completed: launcher, sizes of GLM-4.5-Air, bf16.
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --context-parallel-size 1 \
    --expert-model-parallel-size 16 --expert-tensor-parallel-size 1 --sequence-parallel \
    --micro-batch-size 2 --global-batch-size 16 --seq-length 4096 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --moe-permute-fusion --moe-grouped-gemm --moe-shared-expert-overlap --attention-backend flash \
    --num-layers 46 --hidden-size 4096 --num-attention-heads 96 --kv-channels 128 \
    --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights \
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1408 \
    --bf16 --use-distributed-optimizer
