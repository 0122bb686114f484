/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - finds mistakes in a PersistentVolumeClaim that the API server accepts. Pure. home: any. */
#pragma once

#include "util/err.h"
#include "util/json.h"

/* ERR_INVALID for an unknown annotation of cistern.io, and for an unsupported access mode, volumeMode, selector, clone
 * or snapshot. Also for a data source that the API server dropped from the claim: the volume would be empty. Needs
 * metadata.managedFields of claims without dataSourceRef. */
must_check int api_claim_check(const json *claim, struct err *err);
