"""What every HTML page of ours shares: safe markup, one look, light and dark, and no question to any network."""
