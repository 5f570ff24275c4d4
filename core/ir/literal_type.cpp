#include "core/ir/literal_type.h"

namespace shmap {

DType implied_dtype(std::string_view text, std::span<const ShapedArray> beside,
                    std::span<const ShapedArray> results) {
  const bool is_bool = text == "True" || text == "False";
  const bool is_float = !is_bool && text.find_first_of(".einf") != std::string_view::npos;
  for (const std::span<const ShapedArray> types : {beside, results}) {
    for (const ShapedArray& t : types) {
      const DType d = t.dtype();
      if (is_bool    ? d == DType::bool_
          : is_float ? is_floating(d)
                     : is_integer(d) || d == DType::bf16)
        return d;
    }
  }
  return is_bool ? DType::bool_ : is_float ? DType::f32 : DType::i32;
}

}  // namespace shmap
