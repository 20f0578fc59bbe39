"""The tab Inspect, and what a token tells of itself anywhere."""
