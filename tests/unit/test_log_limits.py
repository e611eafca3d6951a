"""Log lines: how many, in which form, and what they may not show."""
