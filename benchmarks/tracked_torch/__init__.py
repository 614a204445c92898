"""A decoder in native PyTorch (FSDP2, DTensor, checkpoint), traced with fake tensors by PyTorch's memory tracker."""
