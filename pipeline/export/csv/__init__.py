"""Predictions as tables: CSV and Parquet."""
