# NVIDIA/NeMo-Framework-Launcher#309: experts with tensor parallelism want sequence parallelism, and it was off.
# From the recipe that it mends (training/mixtral/mixtral_8x7b.yaml at 05033c87), in Megatron's words: devices, tp,
# pp, ep, both batches, length, precision, distributed optimizer, sizes. Completed: recomputation.
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4 \
    --micro-batch-size 1 --global-batch-size 32 --seq-length 4096 --bf16 --use-distributed-optimizer \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 \
    --moe-token-dispatcher-type alltoall --swiglu --untie-embeddings-and-output-weights \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
