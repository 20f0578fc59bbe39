"""Speculative decoding, from prompt ids to typed events. Knows nothing of any user interface.

`from engine import Engine, EngineConfig, DecodingParams, Message` is all that a program needs; __init__.pyi lists every
name that may be had so, each imported when it is first asked for. To read the code begin with README.md beside this
file.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
