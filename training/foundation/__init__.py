"""Files and paths, for every package. No torch and nothing of ours below it: `pipeline` and the app may import it."""
