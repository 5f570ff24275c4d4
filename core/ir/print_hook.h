// Print hooks: text that a primitive prints instead of its parameters.
#pragma once
#include <string>

#include "core/ir/primitive.h"

namespace shmap {

// Returns whether the primitive has such a text. `text` is then printed in brackets; nothing is
// printed where it is empty.
using PrintHook = bool (*)(const Params& params, std::string* text);
// Sets the hook for all primitives that users make (core/extend); null: none has one.
void set_print_hook(PrintHook hook);

}  // namespace shmap
