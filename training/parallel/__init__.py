"""One stage of a network in several parts: rows of the images, or channels of the filters, on a rank each."""
