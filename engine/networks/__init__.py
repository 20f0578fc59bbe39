"""One forward pass of a language model, and the KV cache that it reads and writes."""
