"""The tab Models."""
