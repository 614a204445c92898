"""What a run is trained on: files to tokens, tokens to windows, windows to the batch of a step.

Life of a token: ``files`` finds the files, ``documents`` streams their texts, an encoder of ``encoders`` makes
tokens of them, once, into ``shards`` of the ``cache``; ``corpus`` is all of them in a row, ``windows`` cuts it,
``order`` shuffles the windows of an epoch, ``batches`` says which of them a step takes. ``opening`` does it all.
"""
