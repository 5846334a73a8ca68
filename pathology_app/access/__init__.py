"""Access to the web app: who may use it, under which name and for how long. One guard checks every request."""
