"""DICOM whole-slide images: pydicom for headers, wsidicom for decoding."""
