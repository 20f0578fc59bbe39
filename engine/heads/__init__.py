"""EAGLE-3 draft heads: the file formats, the mathematics, and one forward pass in torch and one on the native
kernels."""
