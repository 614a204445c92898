# NVIDIA-NeMo/Megatron-Bridge performance summary 26.02, Qwen3 235B on 256 H100 in fp8, in Megatron's words: 80.3 s a
# step. Embedding and loss count as a layer each (recipes/qwen/qwen3_moe.py, v0.3.0), so 94 layers make 32 stages.
torchrun --nnodes 32 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 94 --hidden-size 4096 --num-attention-heads 64 --kv-channels 128 \
    --group-query-attention --num-query-groups 4 --swiglu --untie-embeddings-and-output-weights \
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1536 --moe-grouped-gemm \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 8192 \
    --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 8 \
    --num-virtual-stages-per-pipeline-rank 4 \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --expert-model-parallel-size 32 --expert-tensor-parallel-size 1 \
    --bf16 --fp8-format hybrid --fp8-recipe tensorwise \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
