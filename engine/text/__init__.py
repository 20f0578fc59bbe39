"""Token ids and characters: tokeniser, detokeniser, control tokens, chat template."""
