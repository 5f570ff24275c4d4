// What a primitive prints in the place of its parameters, where it has its own say.
#pragma once
#include <string>

#include "core/ir/primitive.h"

namespace shmap {

// True where it has: `text` is then what stands in brackets, or is empty where nothing does.
using PrintHook = bool (*)(const Params& params, std::string* text);
// One for all primitives that users make (core/extend); null: none has.
void set_print_hook(PrintHook hook);

}  // namespace shmap
