// The TensorFlow release that this object was built for, as bytes that
// python/lodestar/_library.py reads from the file without loading it: loading
// an object built for another release may fail on a symbol, or crash.

namespace lodestar {

extern "C" __attribute__((used, visibility("default")))
const char lodestar_build_info[] =
    "LODESTAR_BUILT_FOR_TENSORFLOW=" LODESTAR_TF_VERSION;

}  // namespace lodestar
