"""The report of a run: one HTML file with what was learned, in words and pictures."""
