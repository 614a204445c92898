"""One thread for torch where ranks are forked: a pool of threads does not survive a fork, and ranks would hang."""

import torch

torch.set_num_threads(1)
