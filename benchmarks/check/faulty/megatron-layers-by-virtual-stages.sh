# NVIDIA/Megatron-LM#468: 80 layers, 16 stages and two virtual stages each would train 64 layers.
# From the thread: layers, stages, and that five layers per rank are cut into virtual stages of two.
# Completed: Llama 2 70B as the model of 80 layers, tensor parallelism, batch, length, launcher.
torchrun --nnodes 16 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 80 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 2 \
    --tensor-model-parallel-size 8 --sequence-parallel \
    --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 1024 --bf16 --use-distributed-optimizer
