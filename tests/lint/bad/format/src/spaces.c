/* SPDX-License-Identifier: Apache-2.0 */
int  badly( int x ){ return x; }
