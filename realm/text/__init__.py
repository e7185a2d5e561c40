"""Level 0: documents, blocks, salient spans, masks and batches. numpy only."""
