"""Image codecs: the only parsers of JPEG and JPEG 2000, and the only calls of a library that decodes them."""
