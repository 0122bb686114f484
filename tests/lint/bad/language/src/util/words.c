/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody is told when somebody lets go of the folder. */
