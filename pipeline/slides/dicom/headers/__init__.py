"""What a DICOM file states before its pixels."""
