# arXiv 2401.10241, table 4, 6.2 billion parameters, 1F1B on eight A100: 39 GB at the peak.
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 1024 --max-position-embeddings 1024 \
    --pipeline-model-parallel-size 8 --tensor-model-parallel-size 1 \
    --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 3 \
    --micro-batch-size 3 --global-batch-size 72 --fp16 --attention-backend unfused
