"""`python -m pipeline …` is `gemslide …`, for use where only the interpreter's path is known."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
