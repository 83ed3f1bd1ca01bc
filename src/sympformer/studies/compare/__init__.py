"""Several models under one budget, or runs side by side: trained, scored, and put together as results."""
