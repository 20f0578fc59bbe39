"""The native kernels: one plain C++ file, compiled on the user's machine, and the layout of weights that it reads."""
