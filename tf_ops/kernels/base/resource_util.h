// Resources that an op creates under its own name.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_RESOURCE_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_RESOURCE_UTIL_H_

#include <string>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

// Finds the resource of `op`, or creates it with make(&resource). Sets output 0
// to its handle if check(resource, name) is OK.
//
// The handle keeps the resource alive, as does its name until ReleaseResource.
// So a function that captured the handle outlives the object that made it. The
// resources in the container of a program end with it, whoever has handles.
template <typename Resource, typename Make, typename Check>
absl::Status OutputResource(OpKernelContext* ctx, const OpKernel& op,
                            const Make& make, const Check& check) {
  tensorflow::ContainerInfo info;
  LODESTAR_TRY(info.Init(ctx->resource_manager(), op.def()));
  Resource* resource = nullptr;
  LODESTAR_TRY(ctx->resource_manager()->LookupOrCreate<Resource>(
      info.container(), info.name(), &resource, make));
  tensorflow::core::RefCountPtr<Resource> owned(resource);
  LODESTAR_TRY(check(*resource, info.name()));
  if (info.container() != ctx->resource_manager()->default_container()) {
    return OutputScalar(ctx, 0,
                        tensorflow::MakeResourceHandle<Resource>(
                            ctx, info.container(), info.name()));
  }
  auto handle = tensorflow::ResourceHandle::MakeRefCountingHandle(
      owned.release(), ctx->device()->attributes().name());
  // Another process finds the resource by its name.
  handle.set_container(info.container());
  handle.set_name(info.name());
  return OutputScalar(ctx, 0, handle);
}

// Returns the resource of `handle`, a scalar.
template <typename Resource>
absl::Status FindResource(OpKernelContext* ctx, const Tensor& handle,
                          tensorflow::core::RefCountPtr<Resource>* resource) {
  return tensorflow::LookupResource(
      ctx, handle.flat<tensorflow::ResourceHandle>()(0), resource);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_RESOURCE_UTIL_H_
