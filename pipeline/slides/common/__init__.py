"""The `Slide` that every reader returns, and the common rules for its image, colours and scale."""
