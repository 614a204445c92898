"""Files that pages of the documentation name without showing them; the measured times are invented."""

PLAN = """plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 4
workload: {seq_len: 2048, global_batch: 16}
stack: meshwright
layout: LAYOUT
sharding: zero1
"""
RUNS = """run_id,model,task,seq_len,device,devices,global_batch,micro_batch,tp,pp,recompute,stack,step_time_s
a,llama-3.1-8b,pretrain,4096,H100-80GB,8,128,1,1,1,full,megatron-core,9.6
b,llama-3.1-8b,pretrain,4096,H100-80GB,8,128,1,2,1,none,megatron-core,8.1
c,llama-3.1-8b,pretrain,4096,H100-80GB,8,128,1,1,2,none,megatron-core,7.9
d,llama-3.1-8b,pretrain,8192,H100-80GB,16,128,1,2,2,none,megatron-core,9.2
"""
GIVEN = {
    "plan.yaml": PLAN.replace("LAYOUT", "{pp: 2, dp_shard: 2}"),
    "other.yaml": PLAN.replace("LAYOUT", "{dp_shard: 4}"),
    "runs.csv": RUNS,
    "our-cluster.yaml": "name: ours\npools: [{device: h100-sxm-80gb, count: 16}]\n",
    "ours.yaml": "nic_efficiency: 0.74\n",
    "train.sh": (
        "python pretrain_gpt.py --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 "
        "--group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 131072 "
        "--position-embedding-type rope --rotary-base 500000 --normalization RMSNorm --swiglu --disable-bias-linear "
        "--untie-embeddings-and-output-weights --bf16 --micro-batch-size 1 --global-batch-size 128 "
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 "
        "--sequence-parallel --use-distributed-optimizer --vocab-size 128256\n"
    ),
}
