# MooreThreads/SimuMax v1.2, case deepseekv3_l4_tp1_ep8_pp1_dp8_mbc4: 104.3 GiB at the peak of a B200.
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 4 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 \
    --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --v-head-dim 128 \
    --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-layer-freq '([0]*1+[1]*3)' \
    --moe-shared-expert-intermediate-size 2048 --moe-grouped-gemm --swiglu --untie-embeddings-and-output-weights \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 32 \
    --expert-model-parallel-size 8 --cross-entropy-loss-fusion --bf16 --use-distributed-optimizer
