"""From the name of a model to a network that is ready: files, formats, and which arithmetic is quickest here."""
