"""Checkpoints of other software: PyTorch's distributed checkpoint (DCP) and Megatron's torch_dist, read and written.

``known_formats`` recognises a folder. Every reader gives the same ``WholeStates``: whole tensors by our names, each
read when it is asked for; every writer takes them. ``dcp_folder`` and ``dcp_writer`` know the files of DCP, which
Megatron uses too; ``dcp_names``, ``hugging_face_names`` and ``megatron_layout`` know the names and forms of tensors in
them.
``restricted_unpickler`` reads their pickled metadata without running what is pickled there.
"""
