"""Weights of Hugging Face checkpoints, in and out: safetensors files, whole or in slices.

``families`` says per family where each of our tensors lies, ``parts`` how a tensor lies in a fused or transposed one,
``folder`` reads what a folder holds, ``loading`` and ``saving`` do the work.
"""
