# NVIDIA/Megatron-LM examples/mixtral/train_mixtral_8x7b_distributed.sh, core_v0.19.0, on eight nodes.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"8"}
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    --use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm --position-embedding-type rope \
    --swiglu --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 \
    --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 \
    --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 \
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall --overlap-param-gather --overlap-grad-reduce \
    --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --bf16 \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 \
    --use-distributed-optimizer --sequence-parallel
