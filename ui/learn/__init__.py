"""The tab Learn."""
