// The version of the package, as in python/lodestar/version.py.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_VERSION_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_VERSION_H_

#define LODESTAR_VERSION "0.1.0"

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_VERSION_H_
