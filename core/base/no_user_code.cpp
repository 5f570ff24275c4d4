#include "core/base/no_user_code.h"

namespace shmap {

namespace {
constinit thread_local int parts = 0;
}  // namespace

void NoUserCode::begin() noexcept { ++parts; }
void NoUserCode::end() noexcept { --parts; }
bool NoUserCode::here() noexcept { return parts != 0; }

}  // namespace shmap
