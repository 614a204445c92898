"""Expert placement on ranks, from how often tokens choose each expert and each pair of experts."""
