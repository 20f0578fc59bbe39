"""Who chooses K: how likely drafts are accepted, what a round takes, and the choice between them."""
