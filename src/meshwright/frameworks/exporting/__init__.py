"""What the exporters of all frameworks share: the uniform plan, the exported files, common limits."""
