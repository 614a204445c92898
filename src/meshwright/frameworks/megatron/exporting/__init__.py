"""Export to Megatron-LM: a plan as its options, and what it cannot express."""
