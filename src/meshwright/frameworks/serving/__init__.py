"""Export of serving plans: what engines lack, settings of a pool, places of replicas, shell text."""
