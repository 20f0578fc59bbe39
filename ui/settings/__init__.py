"""The settings pane."""
