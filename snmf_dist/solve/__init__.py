"""A to L: the algorithms of the paper in one frame."""
