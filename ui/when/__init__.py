"""The tab When to use: the load lab and the advisor."""
