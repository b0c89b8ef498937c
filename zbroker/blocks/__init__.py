"""What processes that read the log share: blocks of batches, and the messages made of them."""
