"""Training: everything that is learned, by maximising the bound."""
