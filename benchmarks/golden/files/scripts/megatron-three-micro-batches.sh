# NVIDIA-NeMo/Speech#14288 (NeMo): interleaving over six stages with three micro-batches is refused by the schedule.
# From the thread: six stages, virtual stages, three micro-batches.
# Completed: GPT-3 175B as a model whose 96 layers divide, tp, length, micro-batch.
torchrun --nnodes 6 --nproc_per_node 8 pretrain_gpt.py \
    --pipeline-model-parallel-size 6 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 3 \
    --micro-batch-size 1 --tensor-model-parallel-size 8 --sequence-parallel \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --bf16 --use-distributed-optimizer
