"""`python -m pipeline …` is `gemslide …`, for who knows the interpreter and not where its scripts lie."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
