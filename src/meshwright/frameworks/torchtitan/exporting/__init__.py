"""Export to torchtitan: a plan as its options, and what it cannot express."""
