# NVIDIA/Megatron-LM#606: fine-tuning Llama 2 7B runs out of memory on eight A100 of 40 GB, at 64 tokens.
# From the thread: model sizes, tp, pp, length, both batches, devices.
# Completed: bf16, and the distributed optimizer, with which least memory is needed.
TP=1
PP=1
GPUS_PER_NODE=8
HIDDEN_SIZE=4096
FFN_HIDDEN_SIZE=11008
NUM_LAYERS=32
NUM_HEADS=32
SEQ_LENGTH=64
MICRO_BATCH_SIZE=1
GLOBAL_BATCH_SIZE=8
torchrun --nnodes 1 --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
    --num-layers $NUM_LAYERS --hidden-size $HIDDEN_SIZE --ffn-hidden-size $FFN_HIDDEN_SIZE \
    --num-attention-heads $NUM_HEADS --seq-length $SEQ_LENGTH --swiglu --untie-embeddings-and-output-weights \
    --micro-batch-size $MICRO_BATCH_SIZE --global-batch-size $GLOBAL_BATCH_SIZE \
    --bf16 --use-distributed-optimizer
