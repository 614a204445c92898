"""Training data of a run: files to tokens, tokens to windows, windows to the batch of a step.

Life of a token: ``input_files`` finds the files, ``documents`` streams their texts, an encoder of ``encoders`` turns
them into tokens once, into ``token_shards`` of the ``tokenised_cache``; ``corpus`` chains the shards,
``sequence_windows`` cuts the corpus, ``epoch_order`` shuffles the windows, ``batches`` picks the windows of a step.
``open_data`` does all of it.
"""
