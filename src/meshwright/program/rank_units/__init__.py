"""What a rank holds, as flat buffers: units of tensors, their places, and the shard of each rank."""
