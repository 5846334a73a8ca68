"""How a slide's file is built, without anything that could identify a person: to report slides that are refused."""
