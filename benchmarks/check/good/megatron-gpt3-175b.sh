# NVIDIA/Megatron-LM examples/gpt3/train_gpt3_175b_distributed.sh, core_v0.19.0, with nodes for eight replicas
# (arXiv 2104.04473 runs this model on as many devices) and without its --step-batch-size-schedule, which megatron-core
# 0.19.2 refuses beside --global-batch-size.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=128
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --seq-length 2048 --max-position-embeddings 2048 --attention-backend auto \
    --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 \
    --fp16 --lr 6.0e-5 --clip-grad 1.0 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16
