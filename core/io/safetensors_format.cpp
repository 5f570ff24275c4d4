#include "core/io/safetensors_format.h"

#include <algorithm>

#include "core/base/dtype_table.h"
#include "core/io/json_reader.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

struct Name {
  DType dtype;
  const char* text;  // nullptr: the format lacks the dtype
};
#define SHMAP_NAME(name, type, jaxpr, numpy, npy, safetensors, ...) {DType::name, safetensors},
constexpr Name kDtypeNames[] = {SHMAP_DTYPES(SHMAP_NAME)};
#undef SHMAP_NAME
constexpr std::string_view kMetadata = "__metadata__";

}  // namespace

std::string SafetensorsHeader::text_at(std::uint32_t at) const {
  JsonReader json(text_, name_);
  json.seek(at);
  return json.text_of("a name in quotes");
}

int SafetensorsHeader::compare(std::uint32_t a, std::uint32_t b) const {
  JsonReader json(text_, name_);
  const auto raw = [&](std::uint32_t at) {
    json.seek(at);
    return json.string("a name in quotes");
  };
  const std::string_view s = raw(a), t = raw(b);
  if (!JsonReader::has_escapes(s) && !JsonReader::has_escapes(t)) return s.compare(t);
  return json.decode(s).compare(json.decode(t));
}

void SafetensorsHeader::check_metadata(std::size_t at, std::size_t* behind) const {
  JsonReader json(text_, name_);
  json.seek(at);
  json.expect('{', "an object of texts");
  std::vector<std::uint32_t> keys;
  for (bool first = true; json.next(first, '}');) {
    keys.push_back(static_cast<std::uint32_t>(json.position()));
    json.text_of("a key in quotes");
    json.expect(':', "':' after a key");
    json.text_of("a text in quotes");
  }
  *behind = json.position();
  std::sort(keys.begin(), keys.end(),
            [&](std::uint32_t a, std::uint32_t b) { return compare(a, b) < 0; });
  for (std::size_t i = 1; i < keys.size(); ++i)
    if (compare(keys[i - 1], keys[i]) == 0)
      json.fail("key " + quoted_bytes(text_at(keys[i])) + " of '__metadata__' is given twice");
}

std::string SafetensorsHeader::name(std::size_t i) const { return text_at(tensors_[i].name); }

TensorEntry SafetensorsHeader::read(std::size_t at, std::size_t* behind) const {
  JsonReader json(text_, name_);
  json.seek(at);
  json.expect('{', "an object of 'dtype', 'shape' and 'data_offsets'");
  TensorEntry entry;
  bool have_dtype = false, have_shape = false, have_offsets = false;
  const auto claim = [&](bool& have, const char* key) {
    if (have) json.fail(std::string("key '") + key + "' is given twice");
    have = true;
  };
  for (bool first = true; json.next(first, '}');) {
    const std::string_view key = json.string("a key in quotes");
    json.expect(':', "':' after a key");
    if (key == "dtype") {
      claim(have_dtype, "dtype");
      const std::string_view given = json.string("a dtype in quotes");
      const auto* found = std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames),
                                       [&](const Name& n) { return n.text && given == n.text; });
      if (found == std::end(kDtypeNames)) {
        json.fail("dtype " + quoted_bytes(given) +
                  ": wanted BOOL, I8 to I64, U8 to U64, F16, BF16, F32 or F64");
      }
      entry.dtype = found->dtype;
    } else if (key == "shape") {
      claim(have_shape, "shape");
      json.expect('[', "a list of extents");
      for (bool one = true; json.next(one, ']');) {
        if (entry.shape.rank() == kMaxRank)
          json.fail("a shape of more than " + std::to_string(kMaxRank) + " dims");
        entry.shape.push_back(json.integer("an extent"));
      }
    } else if (key == "data_offsets") {
      claim(have_offsets, "data_offsets");
      json.expect('[', "a list of two offsets");
      entry.begin = json.integer("an offset");
      json.expect(',', "',' between two offsets");
      entry.end = json.integer("an offset");
      json.expect(']', "']' after two offsets");
    } else {
      json.fail("key " + quoted_bytes(key) +
                " is unknown: 'dtype', 'shape' and 'data_offsets' make a tensor");
    }
  }
  const char* missing = !have_dtype     ? "dtype"
                        : !have_shape   ? "shape"
                        : !have_offsets ? "data_offsets"
                                        : nullptr;
  if (missing != nullptr) json.fail(std::string("key '") + missing + "' is missing");
  std::int64_t bytes = itemsize(entry.dtype);
  bool overflow = false, empty = false;
  for (std::int64_t e : entry.shape) {
    empty = empty || e == 0;
    overflow = overflow || (e != 0 && __builtin_mul_overflow(bytes, e, &bytes));
  }
  if (overflow) json.fail("shape " + to_string(entry.shape) + " has more than 2^63 bytes");
  if (empty) bytes = 0;
  if (entry.begin > entry.end || entry.end - entry.begin != bytes) {
    json.fail("data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
              "] of a tensor of " + std::to_string(bytes) + " bytes");
  }
  if (behind != nullptr) *behind = json.position();
  return entry;
}

SafetensorsHeader::SafetensorsHeader(std::string text, std::int64_t data_size, std::string name)
    : text_(std::move(text)), name_(std::move(name)) {
  JsonReader json(text_, name_);
  if (static_cast<std::int64_t>(text_.size()) > kSafetensorsMaxHeader)
    json.fail("it has " + std::to_string(text_.size()) + " bytes");
  if (!is_utf8(text_)) json.fail("it is no UTF-8");
  if (text_.empty() || text_[0] != '{') json.fail("it does not begin with '{'");
  json.expect('{', "an object of tensors");
  bool metadata = false;
  constexpr std::size_t kShortest = sizeof R"("":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  tensors_.reserve(text_.size() / kShortest);
  for (bool first = true; json.next(first, '}');) {
    const auto name_at = static_cast<std::uint32_t>(json.position());
    const std::string_view raw = json.string("a tensor's name in quotes");
    const bool is_metadata =
        JsonReader::has_escapes(raw) ? json.decode(raw) == kMetadata : raw == kMetadata;
    json.expect(':', "':' after a name");
    std::size_t behind = 0;
    const std::size_t at = json.position();
    if (is_metadata) {
      if (metadata) json.fail("'__metadata__' is given twice");
      metadata = true;
      check_metadata(at, &behind);
    } else {
      const TensorEntry entry = read(at, &behind);
      tensors_.push_back(
          {name_at, static_cast<std::uint32_t>(at), entry.begin, entry.end - entry.begin});
    }
    json.seek(behind);
  }
  json.expect_end();
  check_places(data_size);
  std::sort(tensors_.begin(), tensors_.end(),
            [&](const Tensor& a, const Tensor& b) { return compare(a.name, b.name) < 0; });
  for (std::size_t i = 1; i < tensors_.size(); ++i)
    if (compare(tensors_[i - 1].name, tensors_[i].name) == 0)
      json.fail("tensor " + quoted_bytes(text_at(tensors_[i].name)) + " is given twice");
}

// Checks that the tensors, sorted by their begins, follow one another without gaps.
void SafetensorsHeader::check_places(std::int64_t data_size) const {
  const JsonReader json(text_, name_);
  std::vector<std::uint32_t> order(tensors_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Tensor &s = tensors_[a], &t = tensors_[b];
    return s.begin != t.begin ? s.begin < t.begin : s.bytes < t.bytes;
  });
  std::int64_t at = 0;
  for (std::uint32_t i : order) {
    const Tensor& t = tensors_[i];
    if (t.begin != at) {
      json.fail("tensor " + quoted_bytes(text_at(t.name)) + " begins at byte " +
                std::to_string(t.begin) + " of the data, and " + std::to_string(at) +
                " is wanted: tensors follow one another");
    }
    at += t.bytes;
  }
  if (at != data_size) {
    json.fail("its tensors have " + std::to_string(at) + " bytes, and " +
              std::to_string(data_size) + " follow it");
  }
}

TensorEntry SafetensorsHeader::entry(std::size_t i) const { return read(tensors_[i].at, nullptr); }

SafetensorsLayout layout_safetensors(const std::map<std::string, std::pair<DType, Shape>>& tensors,
                                     const std::string& name) {
  std::vector<const std::pair<const std::string, std::pair<DType, Shape>>*> order;
  for (const auto& t : tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return itemsize(a->second.first) > itemsize(b->second.first);
  });
  SafetensorsLayout layout;
  std::string text = "{";
  std::int64_t at = 0;
  for (const auto* t : order) {
    const std::string& key = t->first;
    const DType dtype = t->second.first;
    const Shape& shape = t->second.second;
    if (!is_utf8(key) || key == kMetadata) {
      throw ValueError(name + ": a tensor's name is " + quoted_bytes(key) +
                       ": wanted UTF-8, other than '__metadata__'");
    }
    const char* const code = kDtypeNames[static_cast<int>(dtype)].text;
    if (code == nullptr) {
      throw TypeError(name + ": tensor " + quoted_bytes(key) + " has dtype " + to_string(dtype) +
                      ", which the format lacks: save the words that keys are made of");
    }
    const std::int64_t bytes = checked_bytes(shape, itemsize(dtype));
    if (text.size() > 1) text += ',';
    text += json_string(key) + ":{\"dtype\":\"" + code + "\",\"shape\":[";
    for (std::size_t d = 0; d < shape.size(); ++d)
      text += (d ? "," : "") + std::to_string(shape[d]);
    layout.offsets[key] = at;
    text += "],\"data_offsets\":[" + std::to_string(at) + ",";
    if (__builtin_add_overflow(at, bytes, &at))
      throw ValueError(name + ": its tensors have more than 2^63 bytes");
    text += std::to_string(at) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<std::int64_t>(text.size()) > kSafetensorsMaxHeader) {
    throw ValueError(name + ": a header of " + std::to_string(text.size()) +
                     " bytes, and at most " + std::to_string(kSafetensorsMaxHeader) +
                     " may be: save fewer tensors a file");
  }
  for (int k = 0; k < 8; ++k)
    layout.head += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * k) & 255);
  layout.head += text;
  const auto base = static_cast<std::int64_t>(layout.head.size());
  for (auto& [key, offset] : layout.offsets) offset += base;
  if (__builtin_add_overflow(at, base, &layout.bytes))
    throw ValueError(name + ": its tensors have more than 2^63 bytes");
  return layout;
}

}  // namespace shmap::io
