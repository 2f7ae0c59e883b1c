#include "tf_ops/core/base/host_device.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

struct Doubled {
  int x;
  LODESTAR_HOST_DEVICE int Value() const { return 2 * x; }
};

TEST(HostDeviceTest, IsEmptyForTheHost) { EXPECT_EQ(Doubled{3}.Value(), 6); }

}  // namespace
}  // namespace lodestar
