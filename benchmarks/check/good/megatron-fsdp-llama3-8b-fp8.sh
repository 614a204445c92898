# NVIDIA/Megatron-LM examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh, core_v0.19.0.
SHARDING_STRATEGY=${SHARDING_STRATEGY:-"optim_grads_params"}
unset CUDA_DEVICE_MAX_CONNECTIONS
python -m torch.distributed.run --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \
    --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 \
    --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --normalization RMSNorm --attention-backend fused \
    --apply-layernorm-1p --untie-embeddings-and-output-weights --disable-bias-linear \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --cross-entropy-loss-fusion \
    --no-check-for-nan-in-loss-and-grad --manual-gc --empty-unused-memory-level 1 \
    --use-megatron-fsdp --data-parallel-sharding-strategy ${SHARDING_STRATEGY} \
    --no-gradient-accumulation-fusion --calculate-per-token-loss --init-model-with-meta-device \
    --ckpt-format fsdp_dtensor --use-nccl-ub --fsdp-double-buffer --fsdp-manual-registration \
    --fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather \
    --tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --mock-data --tokenizer-type NullTokenizer --vocab-size 128256
