"""Facts about the engines that serve a plan."""
