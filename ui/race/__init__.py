"""The tab Race: two lanes, one prompt."""
