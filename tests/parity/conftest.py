"""Everything here needs PyTorch and Hugging Face's transformers: the extra `parity`, run by .ci/parity."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.parity)
