/* SPDX-License-Identifier: Apache-2.0 */
#define ERR_IDS(X) \
    X(9998, NO_PARAGRAPH, "write one")
