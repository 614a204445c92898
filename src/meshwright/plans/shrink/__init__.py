"""Small copies of a plan for proofs on at most eight ranks."""
