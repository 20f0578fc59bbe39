"""Who proposes the draft tokens.

To add a drafter: a class with what `protocol.Drafter` asks for, in a file here; `serving/served_pair.py` makes one for
each reply, and `config.py` has the names that a request may use.
"""
