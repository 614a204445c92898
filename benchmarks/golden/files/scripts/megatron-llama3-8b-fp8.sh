# NVIDIA/Megatron-LM examples/llama/train_llama3_8b_h100_fp8.sh, core_v0.19.0, with the CP_SIZE of the run in its
# README. The script says 1, which Megatron-Bridge's recipe for the same benchmark runs with recomputation only
# (perf_recipes/llama/h100/llama3.py, block of 5 layers).
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
GPUS_PER_NODE=8
NUM_NODES=1
TP_SIZE=1
CP_SIZE=2
DTYPE_ARGS=()
DTYPE_ARGS+=(
    "--fp8-format hybrid"
    "--fp8-amax-history-len 1024"
    "--fp8-amax-compute-algo max"
    "--fp8-param-gather"
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py \
    --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 \
    --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --normalization RMSNorm --attention-backend fused \
    --apply-layernorm-1p --untie-embeddings-and-output-weights --disable-bias-linear \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion \
    --calculate-per-token-loss --manual-gc --empty-unused-memory-level 1 \
    ${DTYPE_ARGS[@]} \
    --tensor-model-parallel-size $TP_SIZE --context-parallel-size $CP_SIZE --sequence-parallel \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --mock-data --tokenizer-type NullTokenizer --vocab-size 128256
