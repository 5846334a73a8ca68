"""Programs behind `gemslide model` and `gemslide plan`, each run in its own process."""
