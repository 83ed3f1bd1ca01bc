"""A trained run as a Hugging Face folder: its model, a card, and the source that it needs."""
