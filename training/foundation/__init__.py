"""Files and paths, for every package. Imports neither torch nor our other packages, so that all may import it."""
