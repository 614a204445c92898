"""Expert parallelism: load of ranks, fan-out of tokens, forms of dispatch."""
