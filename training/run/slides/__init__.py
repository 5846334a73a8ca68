"""Training of slide-level models: bags, targets, validation and packages."""
