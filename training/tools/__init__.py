"""Programs behind `gemslide model` and `gemslide plan`, in processes of their own."""
