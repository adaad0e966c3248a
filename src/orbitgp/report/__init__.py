"""Pictures that a person would rather look at than read."""
