// Converts the features of a CollectionBatch for DeviceCollection.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_FEATURES_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_FEATURES_H_

#include <vector>

#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/device/batch/device_collection.h"

namespace lodestar {

// Returns the features of `batch`, which must outlive them. With Ids::kCount
// they have no ids.
inline std::vector<DeviceCollection::Feature> DeviceFeatures(
    const std::vector<CollectionFeature>& features,
    const CollectionBatch& batch, CollectionBatch::Ids ids) {
  std::vector<DeviceCollection::Feature> result(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    const Bags& bags = batch.bags(f);
    DeviceCollection::Feature& feature = result[f];
    feature.table = features[f].table;
    if (ids == CollectionBatch::Ids::kCount) {
      feature.slot.ids = Span<const int64_t>(nullptr, bags.ids.size());
    } else {
      feature.slot.ids = bags.ids;
      feature.slot.padding_id = bags.padding_id;
    }
    if (batch.has_row_of_each_id(f)) continue;
    feature.slot.row_splits = bags.row_splits;
    feature.slot.weights = bags.weights;
    feature.combiner = bags.combiner;
    feature.default_id = bags.default_id;
  }
  return result;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_FEATURES_H_
