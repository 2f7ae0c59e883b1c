// The wire format of serialized tf.Examples and tf.SequenceExamples.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// How a feature stores its values: the numbers of the fields of
// tf.train.Feature, or kNoValues.
enum FeatureKind : int64_t {
  kNoValues = 0,
  kBytesList = 1,
  kFloatList = 2,
  kInt64List = 3,
};

// The values of one feature in the records added so far. Errors do not name the
// record.
class FeatureColumn {
 public:
  // The first value determines the kind if it is kNoValues. `is_nested`: a row
  // is a list of lists, read from a feature list of tf.SequenceExamples.
  FeatureColumn(FeatureKind kind, bool is_nested)
      : kind_(kind), is_nested_(is_nested) {}

  // Appends a row: the values of a serialized tf.train.Feature, or if `is_list`
  // those of a tf.train.FeatureList. On error, the row has no values.
  Status AddRow(std::string_view feature, bool is_list);
  // Appends a row without values.
  void AddMissing() { row_splits_.push_back(num_lists()); }

  FeatureKind kind() const { return kind_; }
  // int64 or float, or the concatenated bytes of all values.
  const std::string& data() const { return data_; }
  // Where each value begins in data() if kind() is kBytesList.
  const std::vector<int64_t>& value_splits() const { return value_splits_; }
  // If nested: where each list begins in the values.
  const std::vector<int64_t>& list_splits() const { return list_splits_; }
  // Where each row begins in the lists, or if not nested in the values.
  const std::vector<int64_t>& row_splits() const { return row_splits_; }

 private:
  int64_t num_values() const;
  int64_t num_lists() const {
    return is_nested_ ? static_cast<int64_t>(list_splits_.size()) - 1
                      : num_values();
  }
  Status Add(std::string_view feature);
  Status AddList(std::string_view list);
  bool AddValues(FeatureKind kind, std::string_view list);

  FeatureKind kind_;
  const bool is_nested_;
  std::string data_;
  std::vector<int64_t> value_splits_ = {0};
  std::vector<int64_t> list_splits_ = {0};
  std::vector<int64_t> row_splits_ = {0};
};

// Parses records to the columns of named features.
class ExampleParser {
 public:
  // Called for each feature, in order. Names must be distinct.
  void AddColumn(std::string name, FeatureKind kind, bool is_nested);

  // Appends a row to each column: of a tf.Example, or of a tf.SequenceExample,
  // of which the context and the feature lists are read. On error, which
  // describes what is wrong, the row may have no values.
  Status AddRecord(std::string_view record);
  // Appends a row without values.
  void AddMissing();

  const std::vector<FeatureColumn>& columns() const { return columns_; }

 private:
  // A feature of the current record.
  struct Found {
    std::string_view feature;
    bool is_list = false;
    bool exists = false;
  };

  std::vector<FeatureColumn> columns_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> places_;
  std::vector<Found> found_;
  std::string name_;  // reused for lookups
};

// What records show of their features.
struct FeatureSummary {
  FeatureKind kind = kNoValues;  // of the first record with a value
  // The levels of lists: 0 if no record has more than one value. A feature list
  // has 1 if each step has one value, else 2.
  int64_t levels = 0;
};

// Adds the features of a record to *features. Ignores what cannot be read.
void SummarizeExample(std::string_view record,
                      std::map<std::string, FeatureSummary>* features);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_
