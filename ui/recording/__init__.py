"""Replies and races that are kept: in the browser, in a file, as a page."""
