/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - has a lock that guards the fields below, and the batch in hand. */
