"""ICC profiles without their texts, which can name people."""
