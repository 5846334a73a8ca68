"""Processes of the app: environment, installation, connections, Streamlit's files."""
