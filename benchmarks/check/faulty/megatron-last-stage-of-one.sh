# NVIDIA/Megatron-LM#1778: one layer for the last of one stages trains a model of one layer in place of 20.
# From the thread: layers, pp, layers of the last stage. Completed: every other size of the model, batch, length.
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 20 --pipeline-model-parallel-size 1 --decoder-last-pipeline-num-layers 1 \
    --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16 --swiglu \
    --untie-embeddings-and-output-weights \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer
