"""Speculative decoding, from prompt ids to typed events. Knows nothing of any user interface.

Read in this order: `config`, `events`, `decode`, `verify`.
"""

__version__ = "0.1.0"
