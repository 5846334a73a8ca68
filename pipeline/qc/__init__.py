"""Quality control of slides: focus, pen, folds, bubbles and edges by cell; the slide's stain."""
