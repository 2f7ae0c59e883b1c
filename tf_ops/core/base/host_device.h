// Marks functions that nvcc also compiles for the GPU. Empty for other
// compilers.

#ifndef LODESTAR_TF_OPS_CORE_BASE_HOST_DEVICE_H_
#define LODESTAR_TF_OPS_CORE_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define LODESTAR_HOST_DEVICE __host__ __device__
#else
#define LODESTAR_HOST_DEVICE
#endif

#endif  // LODESTAR_TF_OPS_CORE_BASE_HOST_DEVICE_H_
