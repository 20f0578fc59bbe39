"""What the page costs: `python -m ui.bench --help`."""
