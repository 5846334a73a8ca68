"""Every link of the app as one class for each page."""
