"""Read and write Hugging Face checkpoints: safetensors files, whole or in slices.

``family_tensor_names`` maps our tensors to those of each family, ``expert_tensor_names`` those of experts,
``stored_parts`` cuts a tensor out of a fused, stacked or transposed one, ``safetensors_index`` lists the tensors of a
folder, ``load`` and ``save`` do the work.
"""
