# SPDX-License-Identifier: Apache-2.0
import pytest

from .sanity import names_of, run_sanity


@pytest.mark.asan
@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_csi_sanity_passes_and_skips_only_what_we_do_not_offer(driver, folder, access):
    cases = run_sanity(folder, access, driver.socket)
    assert names_of(cases, "skipped") == []
    # csi-sanity itself marks the paging spec as pending.
    assert all("pagination should detect volumes added between pages" in name for name in names_of(cases, "pending"))
    assert len(names_of(cases, "passed")) >= 57
