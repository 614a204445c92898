"""Weights of Hugging Face checkpoints, in and out: safetensors files, whole or in slices.

``families`` says per family where each of our tensors lies, ``experts`` where those of experts do, ``parts`` how a
tensor lies in a fused, stacked or transposed one,
``folder`` reads what a folder holds, ``loading`` and ``saving`` do the work.
"""
