"""The page and the API. Gradio lives here and nowhere else; no tensor ever gets this far."""
