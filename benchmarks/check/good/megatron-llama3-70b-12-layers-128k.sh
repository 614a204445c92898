# MooreThreads/SimuMax v1.2, case llama3_70b_l12_tp2_cp4_pp1_dp1_seq131072_mbc4: 112.7 GiB at the peak of a B200.
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 12 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights \
    --seq-length 131072 --max-position-embeddings 131072 --micro-batch-size 1 --global-batch-size 4 \
    --tensor-model-parallel-size 2 --context-parallel-size 4 --cp-comm-type a2a --sequence-parallel \
    --cross-entropy-loss-fusion --bf16 --use-distributed-optimizer
