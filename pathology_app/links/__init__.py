"""Every link of the app, one class per page."""
