"""Export to Hugging Face Accelerate: a plan as its options, and what it cannot express."""
