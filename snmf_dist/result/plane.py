"""Rows of many columns as places in a plane."""

import numpy as np


def principal_plane(X: np.ndarray) -> np.ndarray:
    """Rows on their two principal components, (s, 2) float32; of each the entry farthest from 0 is positive.

    Examples
    --------
    >>> principal_plane(np.array([[0.0, 0, 0], [0, 4, 1], [0, -4, 1]])).round(1)[:, 0].tolist()
    [0.0, 4.0, -4.0]
    """
    if X.shape[1] < 2:
        X = np.pad(X, ((0, 0), (0, 2 - X.shape[1])))
    centred = X - X.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    plane = centred @ axes[:, :-3:-1]
    far = np.abs(plane).argmax(axis=0)
    return np.asarray(plane * np.where(plane[far, [0, 1]] < 0, -1, 1), dtype=np.float32)
