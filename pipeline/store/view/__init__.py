"""A slide as a screen shows it: pyramid, colours, thumbnails."""
