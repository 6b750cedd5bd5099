"""Every algorithm against every check of the contract."""

from __future__ import annotations

import pytest

import contract

pytestmark = pytest.mark.usefixtures("own_programs")


@pytest.fixture(scope="module", autouse=True)
def process_of_devices():
    yield
    contract.close()


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("case", contract.CASES, ids=lambda case: case.name)
def test_contract(case, check, tmp_path):
    check(case, tmp_path)
