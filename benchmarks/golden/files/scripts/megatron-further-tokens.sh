torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 46 --hidden-size 4096 --ffn-hidden-size 10944 --num-attention-heads 96 --kv-channels 128 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope --seq-length 4096 \
    --mtp-num-layers 1 --mtp-loss-scaling-factor 0.2 --pipeline-model-parallel-size 4 \
    --pipeline-model-parallel-layout 'Et*11|t*12|t*12|t*11mL' --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 1408 --moe-layer-freq '([0]*1+[1]*45)' --untie-embeddings-and-output-weights --expert-model-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 32 --bf16 --use-distributed-optimizer
