# SPDX-License-Identifier: Apache-2.0
def test_a_folder_is_kept():
    pass
