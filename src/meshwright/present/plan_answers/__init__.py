"""Text of answers about plans: ranking, prediction, comparison, explanation, check."""
