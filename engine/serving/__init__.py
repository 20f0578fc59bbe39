"""The engine: one thread that computes, the pair of models in use, and the requests that take turns on it."""
