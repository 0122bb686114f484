/* SPDX-License-Identifier: Apache-2.0 */
#include "../store/xml.h"
