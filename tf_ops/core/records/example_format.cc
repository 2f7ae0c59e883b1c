#include "tf_ops/core/records/example_format.h"

#include <algorithm>
#include <utility>

namespace lodestar {
namespace {

// Reads the fields of a protocol buffer message.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view message)
      : p_(message.data()), end_(message.data() + message.size()) {}

  struct Field {
    uint64_t number = 0;
    int wire = 0;            // the wire type
    uint64_t varint = 0;     // if it is kVarint
    std::string_view bytes;  // otherwise

    bool Is(uint64_t expected) const {
      return number == expected && wire == kBytes;
    }
  };
  static constexpr int kVarint = 0;
  static constexpr int kFixed64 = 1;
  static constexpr int kBytes = 2;
  static constexpr int kFixed32 = 5;

  bool at_end() const { return p_ == end_; }

  // Returns false if the message is malformed.
  bool Next(Field* field) {
    uint64_t tag = 0;
    if (!ReadVarint(&tag) || tag >> 3 == 0 || tag > kMaxTag) return false;
    field->number = tag >> 3;
    field->wire = static_cast<int>(tag & 7);
    uint64_t length = 0;
    switch (field->wire) {
      case kVarint:
        return ReadVarint(&field->varint);
      case kFixed64:
        length = 8;
        break;
      case kBytes:
        if (!ReadVarint(&length)) return false;
        break;
      case kFixed32:
        length = 4;
        break;
      default:
        return false;
    }
    if (length > static_cast<uint64_t>(end_ - p_)) return false;
    field->bytes = std::string_view(p_, length);
    p_ += length;
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (p_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*p_++);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

 private:
  static constexpr uint64_t kMaxTag = 0xffffffff;

  const char* p_;
  const char* end_;
};

using Field = ProtoFields::Field;

// Calls f(field) for each field. Returns false if the message is malformed or
// f returns false.
template <typename F>
bool EachField(std::string_view message, const F& f) {
  ProtoFields fields(message);
  Field field;
  while (!fields.at_end()) {
    if (!fields.Next(&field) || !f(field)) return false;
  }
  return true;
}

// Calls f(name, feature, is_list) for each feature of a record, and for each
// feature list of a tf.SequenceExample. Returns false if it is malformed.
template <typename F>
bool EachFeature(std::string_view record, const F& f) {
  // The context of a tf.SequenceExample has the field of a tf.Example's
  // features.
  return EachField(record, [&](const Field& part) {
    if (!part.Is(1) && !part.Is(2)) return true;
    const bool is_list = part.number == 2;
    return EachField(part.bytes, [&](const Field& entry) {
      if (!entry.Is(1)) return true;
      std::string_view name;
      std::string_view feature;
      // A key and a value, in any order; both are optional.
      const bool is_entry = EachField(entry.bytes, [&](const Field& half) {
        if (half.Is(1)) name = half.bytes;
        if (half.Is(2)) feature = half.bytes;
        return half.Is(1) || half.Is(2);
      });
      if (is_entry) f(name, feature, is_list);
      return is_entry;
    });
  });
}

// Finds the list of values of a serialized tf.train.Feature.
bool FindValues(std::string_view feature, FeatureKind* kind,
                std::string_view* list) {
  *kind = kNoValues;
  return EachField(feature, [&](const Field& field) {
    if (field.number > kInt64List || field.wire != ProtoFields::kBytes) {
      return true;
    }
    if (*kind != kNoValues) return false;
    *kind = static_cast<FeatureKind>(field.number);
    *list = field.bytes;
    return true;
  });
}

void AppendInt64(uint64_t value, std::string* data) {
  data->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

const char* NameOf(FeatureKind kind) {
  return kind == kBytesList   ? "a bytes_list"
         : kind == kFloatList ? "a float_list"
                              : "an int64_list";
}

Status Malformed() {
  return InvalidArgument("its bytes are not those of a protocol buffer");
}

}  // namespace

int64_t FeatureColumn::num_values() const {
  if (kind_ == kBytesList) {
    return static_cast<int64_t>(value_splits_.size()) - 1;
  }
  const size_t size = kind_ == kFloatList ? sizeof(float) : sizeof(int64_t);
  return static_cast<int64_t>(data_.size() / size);
}

bool FeatureColumn::AddValues(FeatureKind kind, std::string_view list) {
  return EachField(list, [&](const Field& field) {
    if (field.number != 1) return true;
    const bool is_packed = field.wire == ProtoFields::kBytes;
    if (kind == kBytesList) {
      if (!is_packed) return false;
      data_.append(field.bytes);
      value_splits_.push_back(static_cast<int64_t>(data_.size()));
      return true;
    }
    if (kind == kFloatList) {
      if (field.wire != ProtoFields::kFixed32 &&
          !(is_packed && field.bytes.size() % sizeof(float) == 0)) {
        return false;
      }
      data_.append(field.bytes);
      return true;
    }
    if (field.wire == ProtoFields::kVarint) {
      AppendInt64(field.varint, &data_);
      return true;
    }
    if (!is_packed) return false;
    ProtoFields values(field.bytes);
    uint64_t value = 0;
    while (!values.at_end()) {
      if (!values.ReadVarint(&value)) return false;
      AppendInt64(value, &data_);
    }
    return true;
  });
}

Status FeatureColumn::Add(std::string_view feature) {
  FeatureKind kind = kNoValues;
  std::string_view list;
  if (!FindValues(feature, &kind, &list)) return Malformed();
  if (kind == kNoValues || list.empty()) return Status();
  if (kind_ == kNoValues || kind == kind_) {
    const FeatureKind before = kind_;
    kind_ = kind;
    if (!AddValues(kind, list)) return Malformed();
    if (num_values() == 0) kind_ = before;
    return Status();
  }
  FeatureColumn other(kind, false);
  if (!other.AddValues(kind, list)) return Malformed();
  if (other.num_values() == 0) return Status();
  return InvalidArgument("found ", NameOf(kind), ", expected ", NameOf(kind_),
                         " as in the first records");
}

Status FeatureColumn::AddList(std::string_view list) {
  Status status;
  int64_t step = 0;
  const bool is_list = EachField(list, [&](const Field& field) {
    if (!field.Is(1)) return true;
    const int64_t before = num_values();
    status = Add(field.bytes);
    if (!status.ok()) return false;
    const int64_t count = num_values() - before;
    if (is_nested_) {
      list_splits_.push_back(num_values());
    } else if (count != 1) {
      status = InvalidArgument(
          "found ", count, " values in step ", step,
          " of a feature list, expected 1, unless the column has `depth` 2");
      return false;
    }
    ++step;
    return true;
  });
  return is_list || !status.ok() ? status : Malformed();
}

Status FeatureColumn::AddRow(std::string_view feature, bool is_list) {
  const FeatureKind kind = kind_;
  const size_t bytes = data_.size();
  const size_t values = value_splits_.size();
  const size_t lists = list_splits_.size();
  Status status;
  if (is_list) {
    status = AddList(feature);
  } else if (is_nested_) {
    status = InvalidArgument(
        "found a list of values, expected a feature list of a "
        "tf.SequenceExample, as `depth` says");
  } else {
    status = Add(feature);
  }
  if (!status.ok()) {
    kind_ = kind;
    data_.resize(bytes);
    value_splits_.resize(values);
    list_splits_.resize(lists);
  }
  AddMissing();
  return status;
}

void ExampleParser::AddColumn(std::string name, FeatureKind kind,
                              bool is_nested) {
  columns_.emplace_back(kind, is_nested);
  places_.emplace(name, names_.size());
  names_.push_back(std::move(name));
  found_.emplace_back();
}

Status ExampleParser::AddRecord(std::string_view record) {
  std::fill(found_.begin(), found_.end(), Found());
  Status status;
  const auto find = [&](std::string_view name, std::string_view feature,
                        bool is_list) {
    name_.assign(name);
    const auto place = places_.find(name_);
    if (place == places_.end()) return;
    Found& found = found_[place->second];
    if (found.exists && found.is_list != is_list) {
      status = InvalidArgument("column '", name,
                               "': found both a feature and a feature list");
    }
    found = {feature, is_list, true};
  };
  if (!EachFeature(record, find)) {
    AddMissing();
    return InvalidArgument("is not a tf.Example: its ", record.size(),
                           " bytes are not those of a protocol buffer");
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!found_[i].exists) {
      columns_[i].AddMissing();
      continue;
    }
    const Status added =
        columns_[i].AddRow(found_[i].feature, found_[i].is_list);
    if (!added.ok() && status.ok()) {
      status = InvalidArgument("column '", names_[i], "': ", added.message());
    }
  }
  return status;
}

void ExampleParser::AddMissing() {
  for (FeatureColumn& column : columns_) column.AddMissing();
}

void SummarizeExample(std::string_view record,
                      std::map<std::string, FeatureSummary>* features) {
  EachFeature(record, [&](std::string_view name, std::string_view feature,
                          bool is_list) {
    FeatureSummary& summary = (*features)[std::string(name)];
    FeatureColumn column(kNoValues, is_list);
    if (!column.AddRow(feature, is_list).ok()) return;
    if (summary.kind == kNoValues) summary.kind = column.kind();
    int64_t levels = column.row_splits().back() > 1 ? 1 : 0;
    if (is_list) {
      const std::vector<int64_t>& splits = column.list_splits();
      levels = 1;
      for (size_t i = 1; i < splits.size(); ++i) {
        if (splits[i] - splits[i - 1] != 1) levels = 2;
      }
    }
    summary.levels = std::max(summary.levels, levels);
  });
}

}  // namespace lodestar
