"""Who may ask the web app, under which name and for how long: one guard in front of every request."""
