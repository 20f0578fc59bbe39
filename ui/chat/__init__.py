"""The tab Chat."""
