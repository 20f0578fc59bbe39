"""State to HTML: pure, and everything that came from a person or a model is escaped."""
