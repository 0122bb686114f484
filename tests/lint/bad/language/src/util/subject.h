/* SPDX-License-Identifier: Apache-2.0 */
/* Who may not list may read one object. */
