/* SPDX-License-Identifier: Apache-2.0 */
/* crc.h - computes CRC64NVME, which ISA-L 2.30 lacks, and combines CRCs of parts. Private to util. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CRC32_POLY UINT64_C(0xedb88320)
#define CRC32C_POLY UINT64_C(0x82f63b78)
#define CRC64NVME_POLY UINT64_C(0x9a6c9329ac4bc9b5) /* 0xad93d23594c93659, reflected */

/* Continues from `crc` (0 at first); `crc` and the result are final values, as with zlib's crc32(). */
uint64_t crc64nvme(uint64_t crc, const void *bytes, size_t len);
uint64_t crc64nvme_portable(uint64_t crc, const void *bytes, size_t len); /* on any machine; the reference for tests */

/* The same, and mem_copy_out() of the bytes, in one pass if the processor supports it. */
uint64_t crc64nvme_copy_out(uint64_t crc, void *to, const void *bytes, size_t len);

/* The CRC of A followed by B from the CRCs of both. `poly` is reflected, of `width` bits (32 or 64). */
uint64_t crc_combine(uint64_t poly, unsigned width, uint64_t a, uint64_t b, uint64_t b_len);
