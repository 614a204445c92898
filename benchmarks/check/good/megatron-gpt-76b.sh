# arXiv 2104.04473, table 1, 76.1 billion parameters on 1024 A100: 16.1 s a step.
torchrun --nnodes 128 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 60 --hidden-size 10240 --num-attention-heads 80 --seq-length 2048 --max-position-embeddings 2048 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5 \
    --micro-batch-size 2 --global-batch-size 1792 --fp16 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
