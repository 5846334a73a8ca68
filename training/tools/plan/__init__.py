"""Parts of the report of `gemslide plan`."""
