"""Fixtures of the package's tests. Their oracle is float64 NumPy (oracle.py), which shares nothing with the library."""

import numpy as np
import pytest


@pytest.fixture
def random():
    return np.random.default_rng(20261130)
