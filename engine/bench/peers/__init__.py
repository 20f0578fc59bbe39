"""The same prompts through other engines: transformers and llama.cpp."""
