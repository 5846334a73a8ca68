"""Networks that gemslide does not build itself: ONNX files, TorchScript files, and code of other packages."""
