# THUDM/slime#1818 and its mend #2077: 1 x 8 x 2 expert ranks times stages want 16 devices, the node has eight.
# From the thread: devices, tp, pp, ep, etp. From the script that it is about (scripts/run-glm4.7-30B-A3B.sh): cp,
# layers of the last stage, recomputation, batch. Completed: length, micro-batch, sizes of GLM-4.7-Flash in short.
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2 --sequence-parallel \
    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --decoder-last-pipeline-num-layers 23 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --global-batch-size 1024 --micro-batch-size 1 --seq-length 32768 \
    --num-layers 47 --hidden-size 2048 --ffn-hidden-size 10240 --num-attention-heads 20 \
    --multi-latent-attention --q-lora-rank 768 --kv-lora-rank 512 --qk-head-dim 192 --v-head-dim 256 \
    --num-experts 64 --moe-router-topk 4 --moe-ffn-hidden-size 1536 --swiglu \
    --bf16 --use-distributed-optimizer
