"""Level 3: recall, answers, BM25 and masked-word loss."""
