"""The slide viewer: OpenSeadragon in the browser as a Streamlit component."""
