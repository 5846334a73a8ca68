"""Recipes: what decides a training run, and the engine's plan that follows from it."""
