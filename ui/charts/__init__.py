"""Figures with a sentence and a table each."""
