// A version of a model that a follower serves.

#ifndef LODESTAR_TF_OPS_KERNELS_SERVING_SERVED_VERSION_H_
#define LODESTAR_TF_OPS_KERNELS_SERVING_SERVED_VERSION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/serving/snapshot_follower.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

// Its handles own its resources.
struct ServedVersion {
  int64_t version = 0;
  std::vector<Tensor> handles;
  std::vector<std::shared_ptr<const FollowedIds>> id_tables;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SERVING_SERVED_VERSION_H_
