"""Export to DeepSpeed: a plan as its options, and what it cannot express."""
