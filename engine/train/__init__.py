"""Makes a draft head for a target: `python -m engine.train collect | features | fit`."""
