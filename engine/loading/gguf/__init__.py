"""GGUF files: read by header, turned once into a folder from which a start is quick, and loaded without
transformers."""
