"""Export to Megatron-Bridge: a plan as its options, and what it cannot express."""
