"""Fixtures and options of the package's tests. Their oracle is float64 NumPy (oracle.py), which shares nothing with the library."""

import numpy as np
import pytest


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also what takes minutes or real packages")


@pytest.fixture
def random():
    return np.random.default_rng(20261130)
